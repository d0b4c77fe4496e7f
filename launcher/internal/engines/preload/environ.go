package preload

import (
	"maps"
	"slices"
	"strings"
)

// variables is an environment by name, without the variables in perProcess.
type variables map[string]string

func parse(env []string) variables {
	v := variables(byName(env))
	for _, name := range perProcess {
		delete(v, name)
	}
	return v
}

// byName returns a whole environment by name.
func byName(env []string) map[string]string {
	v := map[string]string{}
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			v[name] = value
		}
	}
	return v
}

// perProcess are the variables that each process has for itself. The pool ignores
// them:
//   - the marks of a process tree (package process);
//   - the padding that makes room for the marks of a forked process;
//   - the folder of simulated GPUs, which a preloader does not use.
var perProcess = []string{"HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER", padName, "HOTSEAT_SIMGPU_DIR"}

const padName = "HOTSEAT_PAD"

func (v variables) list() []string {
	out := make([]string, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		out = append(out, name+"="+v[name])
	}
	return out
}

// unobservable are prefixes of variables that C libraries and the interpreter read
// when they start. No Python code can observe that.
var unobservable = []string{
	"LD_", "PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_", "ONEDNN_", "DNNL_", "ATEN_",
	"MALLOC_", "MIMALLOC_", "TCMALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_",
	"VLLM_LOGGING_", "VLLM_TARGET_DEVICE", "VLLM_PLUGINS",
	"OPENSSL_", "NPY_", "NUMPY_", "MKLDNN_", "THP_", "OPENCV_", "GRPC_", "GFORTRAN_", "CUBLAS", "GLIBCXX_", "I_MPI_", "INTEL_",
	"RUST_", "TOKENIZERS_", "NVRTC_", "SQLITE_", "LOCALTIME",
}

// runTimeNames are variables that an engine reads again whenever it needs them. So it
// does not matter that an import reads them too.
var runTimeNames = []string{
	"NVIDIA_VISIBLE_DEVICES", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY",
}

// loadTime holds the names of variables that the imports were seen to read or to
// change. These, the unobservable variables and the variables of GPUs are the load-time
// variables: their values change what is loaded.
type loadTime map[string]bool

func (l loadTime) has(name string) bool {
	if slices.Contains(runTimeNames, name) {
		return false
	}
	return l[name] || slices.Contains(gpuVariables, name) || slices.ContainsFunc(unobservable, func(p string) bool { return strings.HasPrefix(name, p) })
}

// differing returns the names of the load-time variables that differ between a and b.
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

// with returns a copy of the environment that has the named variables of other.
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
