package daemon

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// openEngines makes the adapters of the engines, of which vLLM is the default, and returns the
// programs of those that there are, by the engines' names.
func (d *Daemon) openEngines() (vllm *engine.VLLM, programs map[string][]string, err error) {
	vllm, llama := engine.NewVLLM(engine.VLLMOptions{}), engine.NewLlamaCpp(engine.LlamaCppOptions{})
	d.engines, programs = []engine.Engine{vllm, llama}, map[string][]string{vllm.Name(): d.opts.Program}
	if d.commands, err = d.readCommands(); err != nil {
		return nil, nil, err
	}
	for _, c := range d.commands {
		path, err := exec.LookPath(c.Program[0])
		if err != nil {
			return nil, nil, fmt.Errorf("cannot find the program of the command %s: %w", c.Name, err)
		}
		programs[c.Name] = []string{path}
		d.engines = append(d.engines, newCommand(c))
	}
	for _, e := range d.engines {
		d.later(func() error { e.Close(); return nil })
	}
	if d.opts.LlamaServer != nil {
		programs[llama.Name()] = d.opts.LlamaServer
	}
	return vllm, programs, nil
}

// readCommands reads the commands of the configuration. A launcher that only ends what an earlier
// one has left does so whatever mistakes the configuration has.
func (d *Daemon) readCommands() ([]catalogue.Command, error) {
	c, err := d.readCatalogue()
	switch {
	case err == nil:
		return c.Commands, nil
	case d.opts.Last:
		return nil, nil
	}
	return nil, err
}

func newCommand(c catalogue.Command) *engine.Command {
	health := c.Health
	if health == catalogue.HealthNone {
		health = ""
	}
	return engine.NewCommand(engine.CommandOptions{Name: c.Name, Words: c.Program[1:], Health: health, Inference: c.Inference, ModelName: c.ModelName})
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
