package daemon

import (
	"cmp"
	"path/filepath"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/engines/compiled"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	compiledFolder = "compiled" // of the folder of models, or else of the state folder
	compiledOff    = "off"
	compiledAlways = "always"
)

// openCompiled opens the cache of what engines compile. Where it cannot be had, engines
// start all the same, and compile as if there were none.
func (d *Daemon) openCompiled(gpus gpu.Provider) {
	if cmp.Or(d.opts.CompileCache, compiledOff) == compiledOff {
		return
	}
	var products []string
	for _, g := range gpus.Devices() {
		products = append(products, g.Product)
	}
	python, err := preload.PythonOf(d.opts.Program[0], d.opts.Program[1:], d.opts.PreloadPython)
	if err != nil { // the program is no Python script
		python = []string{""}
	}
	kind := compiled.KindOf(d.opts.Program[0], python[0], products)
	for _, parent := range slices.Compact([]string{cmp.Or(d.opts.ModelStore, d.opts.StateDir), d.opts.StateDir}) {
		options := compiled.Options{Dir: filepath.Join(parent, compiledFolder), Kind: kind, Limit: d.opts.CompileCacheLimit, Starting: d.starting}
		if d.compiled, err = compiled.Open(options); err == nil {
			d.later(d.compiled.Close)
			return
		}
		d.log.Warn("cannot keep compiled code for the next start", "folder", options.Dir, "error", err)
	}
	d.compiled = nil
}

// starting says whether an engine is starting.
func (d *Daemon) starting() bool {
	all, _ := d.sup.List()
	return slices.ContainsFunc(all, func(i launcherapi.Instance) bool { return i.State == string(launcher.Starting) })
}

// awaited is the cache for which starts wait: with simulated GPUs only if they are told
// to, since engines that are real compile little there, or nothing.
func (d *Daemon) awaited(gpus gpu.Provider) supervisor.Compiled {
	if d.compiled == nil || gpus.Kind() != engine.AcceleratorNVML && d.opts.CompileCache != compiledAlways {
		return nil
	}
	return d.compiled
}

// pruneCompiled drops what engines have left that nobody uses, where there is too much.
func (d *Daemon) pruneCompiled() {
	if d.compiled == nil {
		return
	}
	removed, beyond, err := d.compiled.Prune()
	if err != nil {
		d.log.Warn("cannot remove old compile caches", "error", err)
	}
	if len(removed) > 0 {
		d.log.Info("removed compile caches that no launcher uses", "keys", removed)
	}
	if beyond > 0 {
		d.log.Warn("compile caches in use exceed compile_cache_limit; remove some by launcher compiled rm", "bytes_beyond", beyond)
	}
}
