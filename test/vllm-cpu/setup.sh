#!/usr/bin/env bash
# setup.sh makes vLLM runnable on this machine without a GPU: the engine in a
# virtual environment, a vllm command, and two tiny models. README.md tells
# more. A second run does nothing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/vllm-cpu/python.sh
. "$here/python.sh"
# shellcheck source=test/vllm-cpu/release.sh
. "$here/release.sh"
# shellcheck source=test/vllm-cpu/progress.sh
. "$here/progress.sh"

cache="${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}/vllm-cpu"
case $cache in
  /*) ;;
  *) cache="$PWD/$cache" ;;
esac
release="${VLLM:-$locked_release}"
venv="$cache/venv"
models="$cache/models"
stamp="$cache/stamp"

fail() {
  echo "vllm-cpu: $*" >&2
  exit 1
}

# inputs FILE... prints a hash of the files that a part is made from, and the
# place, for a virtual environment cannot be moved.
inputs() {
  (cd "$here" && sha256sum "$@") | { sha256sum; echo "$cache"; }
}

venv_inputs() {
  if [ "$release" = "$locked_release" ]; then
    inputs python.sh requirements.lock vllm-metadata/pyproject.toml
  else
    echo "$release"
    inputs python.sh release.sh vllm-metadata/pyproject.toml
  fi
}

all_inputs() {
  venv_inputs
  inputs setup.sh make_models.py vllm_cpu_defaults.py
}

# stamped STAMP INPUTS says whether the part was finished, from these inputs.
stamped() {
  [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# venv_ready says whether the virtual environment is there and up to date.
venv_ready() {
  stamped "$venv/stamp" "$(venv_inputs)" && [ -x "$venv/bin/python" ] && [ -x "$venv/bin/vllm" ]
}

# ready says whether a finished set-up of these inputs is there.
ready() {
  stamped "$stamp" "$(all_inputs)" && venv_ready && [ -x "$cache/bin/vllm" ] &&
    [ -f "$models/tiny-a/model.safetensors" ] && [ -f "$models/tiny-b/model.safetensors" ]
}

# ensure_libnuma installs the one shared library that vLLM takes from the system.
ensure_libnuma() {
  has_libnuma && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "the library libnuma.so.1 is missing: install it (Debian and Ubuntu: apt-get install libnuma1)"
  fi
  echo "vllm-cpu: installing libnuma1"
  apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends libnuma1 >/dev/null
  has_libnuma || fail "libnuma1 was installed, but libnuma.so.1 is still not found"
}

has_libnuma() {
  # Read to its end: grep -q would break the pipe, and pipefail reports that.
  PATH="$PATH:/usr/sbin:/sbin" ldconfig -p | grep 'libnuma\.so\.1 ' >/dev/null
}

# make_venv builds the virtual environment, unless only other parts changed:
# it takes the longest, and an engine may be running from it.
make_venv() {
  venv_ready && return
  echo "vllm-cpu: installing vLLM $release in $cache (over 6 GB, some minutes)"
  local python
  python=$(find_python)
  rm -rf "$venv"
  install_uv "$python" "$venv"
  if [ "$release" = "$locked_release" ]; then
    install_packages "$here" "$venv" "$work"
  else
    install_release "$here" "$venv" "$work" "$release"
  fi
  finish "$venv/stamp" "$(venv_inputs)"
}

# finish STAMP INPUTS marks a part as done.
finish() {
  echo "$2" >"$work/stamp"
  mv "$work/stamp" "$1"
}

make_models() {
  echo "vllm-cpu: making two tiny models"
  rm -rf "$models"
  HF_HUB_OFFLINE=1 "$venv/bin/python" "$here/make_models.py" "$models" >"$work/models.log" 2>&1 ||
    { cat "$work/models.log" >&2; fail "cannot make the models"; }
}

# make_command makes bin/vllm, and has the environment's Python set what vLLM
# needs here where the caller has not set it (site runs what a .pth file imports).
make_command() {
  local site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  cp "$here/vllm_cpu_defaults.py" "$site/"
  case $release in
    # With nobind it ends in an IndexError (vllm/utils/ompmultiprocessing.py).
    0.20.*) sed -i 's/"nobind"/"0"/' "$site/vllm_cpu_defaults.py" ;;
  esac
  echo "import vllm_cpu_defaults" >"$site/vllm_cpu_defaults.pth"
  mkdir -p "$cache/bin"
  ln -sfn "$venv/bin/vllm" "$cache/bin/vllm"
}

report() {
  echo "vllm command: $cache/bin/vllm"
  echo "python:       $venv/bin/python"
  echo "models:       $models/tiny-a"
  echo "              $models/tiny-b"
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the lock file is for Linux on x86-64, not for $(uname -sm)"
ensure_libnuma
if ! ready; then
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
  # Another run may have done it while this one waited for the lock.
  if ! ready; then
    # No child inherits the lock: it must end with this script.
    rm -f "$stamp"
    rm -rf "$cache"/work.*
    work=$(mktemp -d "$cache/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    make_venv 9>&-
    make_models 9>&-
    make_command
    finish "$stamp" "$(all_inputs)"
  fi
fi
report
