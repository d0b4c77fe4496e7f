package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// leastPreload is a little more than what a preloader of vLLM holds: 0.9 GiB was
// seen without a GPU.
const leastPreload = 1 << 30

// preloading is what is known of forking engines here.
type preloading struct {
	method string   // start_method
	python []string // that loads them
	err    error    // why none can be forked
	tried  string   // why the launcher that runs here has no preloader, after it tried
	limit  uint64   // of memory, in bytes; 0: none
	host   uint64   // main memory that engines may have, in bytes; 0: unknown
	kinds  []string // of GPU, as preloaders tell them apart
	left   string   // what NVML leaves in a process that asks it
}

// checkPreloading tells whether engines can be forked. Loading one is not tried:
// that takes as long as a start. A launcher that runs has tried.
func checkPreloading(ctx context.Context, e *examination) []Result {
	if e.Program.Err != nil || e.Program.StandIn {
		return nil
	}
	p := preloading{method: e.StartMethod, limit: e.PreloadMemoryLimit, kinds: e.gpus.kinds()}
	p.python, p.err = preload.PythonOf(e.Program.Argv[0], e.Program.Argv[1:], e.PreloadPython)
	p.host = e.usableMemory()
	if p.method == launcherapi.StartExec || p.err != nil {
		return one(judgePreloading(p))
	}
	asking, cancel := context.WithTimeout(ctx, e.VersionTimeout)
	defer cancel()
	if p.err = hasVLLM(asking, p.python); p.err == nil {
		p.left, p.err = preload.LeftByNVML(asking, p.python)
	}
	if p.err == nil {
		p.tried = triedPreloading(ctx, e.Listen)
	}
	return one(judgePreloading(p))
}

// hasVLLM says by an error that a Python has no vLLM to load.
func hasVLLM(ctx context.Context, python []string) error {
	look := "import importlib.util; print(importlib.util.find_spec('vllm') is not None)"
	found, err := output(ctx, slices.Concat(python, []string{"-c", look}))
	if err != nil {
		return fmt.Errorf("cannot check whether %s has vllm: %w", python[0], err)
	}
	if lastLine(found) == "False" {
		return fmt.Errorf("%s has no module vllm", python[0])
	}
	return nil
}

// triedPreloading asks the launcher that runs here, if there is one that wants
// no token, why the preloader of common instances does not serve.
func triedPreloading(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var list launcherapi.PreloaderList
	if code, err := get(ctx, "http://"+address+"/v2/vllm/preloaders", &list); err != nil || code != http.StatusOK {
		return ""
	}
	for _, l := range list.Preloaders {
		if len(l.Variables) == 0 && l.State == string(preload.Waiting) {
			return l.Reason
		}
	}
	return ""
}

func judgePreloading(p preloading) Result {
	r := Result{Name: "preloading", Status: Warn}
	switch {
	case p.method == launcherapi.StartExec:
		r.Status, r.Finding = OK, "off (start_method is exec): every start imports the engine"
	case p.err != nil:
		r.Finding = "engines start by exec, and each start imports the engine: " + p.err.Error()
		r.Remedy = "give the `vllm` script that pip installs by --vllm, or its Python by --preload-python; or choose --start-method exec"
		if p.method == launcherapi.StartFork {
			r.Status, r.Finding = Fail, "start_method is fork, but the launcher cannot fork engines: "+p.err.Error()
		}
	case p.tried != "":
		r.Finding = "the running launcher starts engines by exec, since its preloader is not ready: " + p.tried
		r.Remedy = "fix the cause, or choose --start-method exec; `launcher preloaders` shows more"
	case p.limit != 0 && p.limit < leastPreload:
		r.Finding = fmt.Sprintf("preload_memory_limit is %s, but a preloader of vLLM holds about 0.9 GiB, so the launcher keeps none", launcher.BytesText(p.limit))
		r.Remedy = "raise --preload-memory-limit, or choose --start-method exec"
	case p.host != 0 && (p.limit == 0 || p.limit > p.host/2):
		r.Finding = fmt.Sprintf("preloaders may take more than half of the memory, %s (preload_memory_limit: %s)", launcher.BytesText(p.host), limitText(p.limit))
		r.Remedy = "lower --preload-memory-limit; a preloader takes about 0.9 GiB, and there is one for each set of variables that vLLM reads while it loads"
	default:
		r.Status, r.Finding = OK, fmt.Sprintf("the launcher can fork engines from a preloader run by %s (preload_memory_limit: %s)", strings.Join(p.python, " "), limitText(p.limit))
		if p.left != "" {
			r.Finding += "; helper processes ask NVML for the forked engines, since NVML leaves this in each process that asks it: " + p.left
		}
		if len(p.kinds) > 1 {
			r.Finding += "; each kind of GPU has a preloader of its own: " + strings.Join(p.kinds, ", ")
		}
	}
	return r
}

func limitText(bytes uint64) string {
	if bytes == 0 {
		return "none"
	}
	return launcher.BytesText(bytes)
}
