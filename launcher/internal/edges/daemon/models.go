package daemon

import (
	"cmp"
	"fmt"

	"hotseat.dev/hotseat/launcher/internal/machine/pagecache"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/models/keeper"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
)

// openModels opens the store of models, where there is one.
func (d *Daemon) openModels(host *process.Host) (err error) {
	o := d.opts
	if o.ModelStore == "" {
		return nil
	}
	if d.models, err = modelstore.NewUser(o.ModelStore, "the launcher of "+cmp.Or(o.ModelUser, o.StateDir)); err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	fetches := &fetches{host: host, dir: o.ModelStore, memory: o.ModelFetchMemory, logger: d.log}
	d.keeper, err = keeper.New(keeper.Options{
		Dir: o.ModelStore, Limit: o.ModelStorageLimit, Retention: modelstore.Retention(o.ModelRetention), Marks: modelstore.Watermarks{High: o.ModelGCHigh, Low: o.ModelGCLow},
		Program: o.ModelFetch, Stderr: o.Stderr, Start: fetches.start, Pulled: d.metrics.Pulled, Evicted: d.metrics.Evicted, Room: pagecache.Room, Logger: d.log,
	})
	if err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	d.later(d.keeper.Close)
	return nil
}

// usedModels are the models that instances use.
type usedModels struct {
	*modelstore.User
	mayRead func(v modelstore.Version, env func(name string) string) error
}

func (u usedModels) MayRead(v modelstore.Version, env func(name string) string) error {
	return u.mayRead(v, env)
}
