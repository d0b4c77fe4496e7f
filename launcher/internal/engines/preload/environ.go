package preload

import (
	"maps"
	"slices"
	"strings"
)

// variables is an environment by name, without the variables in own.
type variables map[string]string

func parse(env []string) variables {
	v := variables(all(env))
	for _, name := range own {
		delete(v, name)
	}
	return v
}

// all is a whole environment by name.
func all(env []string) map[string]string {
	v := map[string]string{}
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			v[name] = value
		}
	}
	return v
}

// own are variables that each process has for itself: the marks of a tree (package
// process), the padding that makes room for the marks of a forked one, and the
// folder of simulated GPUs, which a preloader does not use.
var own = []string{"HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER", padName, "HOTSEAT_SIMGPU_DIR"}

const padName = "HOTSEAT_PAD"

func (v variables) list() []string {
	out := make([]string, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		out = append(out, name+"="+v[name])
	}
	return out
}

// unseen are prefixes of variables that are read when a C library is loaded or an
// interpreter starts, which no Python code can observe.
var unseen = []string{
	"LD_", "PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_", "ONEDNN_", "DNNL_", "ATEN_",
	"MALLOC_", "MIMALLOC_", "TCMALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_",
	"VLLM_LOGGING_", "VLLM_TARGET_DEVICE", "VLLM_PLUGINS",
	"OPENSSL_", "NPY_", "NUMPY_", "MKLDNN_", "THP_", "OPENCV_", "GRPC_", "GFORTRAN_", "CUBLAS", "GLIBCXX_", "I_MPI_", "INTEL_",
	"RUST_", "TOKENIZERS_", "NVRTC_", "SQLITE_", "LOCALTIME",
}

// runTime are variables that are read again whenever they are needed, although an
// import reads them too.
var runTime = []string{
	"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY",
}

// loadTime holds the names of variables that the imports were seen to read or to
// change. These variables, and those that are unseen, count when a program is
// loaded.
type loadTime map[string]bool

func (l loadTime) has(name string) bool {
	if slices.Contains(runTime, name) {
		return false
	}
	return l[name] || slices.ContainsFunc(unseen, func(p string) bool { return strings.HasPrefix(name, p) })
}

// differing names the load-time variables that are not the same in both.
func (l loadTime) differing(a, b variables) []string {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var out []string
	for name := range names {
		x, inA := a[name]
		y, inB := b[name]
		if (x != y || inA != inB) && l.has(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// with is the environment with the named variables as in another environment.
func (v variables) with(other variables, names []string) variables {
	out := maps.Clone(v)
	for _, name := range names {
		if value, ok := other[name]; ok {
			out[name] = value
		} else {
			delete(out, name)
		}
	}
	return out
}
