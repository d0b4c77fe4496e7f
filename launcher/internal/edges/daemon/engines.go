package daemon

import (
	"path/filepath"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// openEngines makes the adapters of the engines, of which vLLM is the default, and returns the
// programs of those that there are, by the engines' names.
func (d *Daemon) openEngines() (vllm *engine.VLLM, programs map[string][]string) {
	vllm, llama := engine.NewVLLM(engine.VLLMOptions{}), engine.NewLlamaCpp(engine.LlamaCppOptions{})
	d.engines, programs = []engine.Engine{vllm, llama}, map[string][]string{vllm.Name(): d.opts.Program}
	for _, e := range d.engines {
		d.later(func() error { e.Close(); return nil })
	}
	if d.opts.LlamaServer != nil {
		programs[llama.Name()] = d.opts.LlamaServer
	}
	return vllm, programs
}

// How long a preloader may take to import everything, and to fork.
const (
	preloadTime      = 5 * time.Minute
	firstPreloadTime = 2 * time.Minute // how long a start waits for a preloader where none has loaded before
	forkTime         = 3 * time.Second
)

func (d *Daemon) newPool(vllm *engine.VLLM, host *process.Host, environ []string, gpus gpu.Provider, writes *statedir.Queue) *preload.Pool {
	command := d.opts.Program[0]
	var devices []gpu.Device
	if gpus.Kind() == engine.AcceleratorNVML { // no engine asks simulated GPUs what they are
		devices = gpus.AllDevices()
	}
	return preload.New(preload.Options{
		Command: command, Arguments: d.opts.Program[1:], Python: d.opts.PreloadPython, Recipe: vllm.Recipe(), Environ: vllm.CommonEnv(environ), GPUs: devices,
		Dir: filepath.Join(d.opts.StateDir, preFolder), Host: host, Disk: newStateDisk(writes, filepath.Join(d.opts.StateDir, preFolder)),
		MemoryLimit: d.opts.PreloadMemoryLimit, IdleTime: d.opts.PreloadIdleTimeout, LoadTime: preloadTime, FirstLoad: firstPreloadTime, AnswerTime: forkTime, Logger: d.log,
	})
}
