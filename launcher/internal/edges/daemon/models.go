package daemon

import (
	"cmp"
	"fmt"
	"os"

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
	name := cmp.Or(o.ModelUser, fmt.Sprintf("%s (%s)", o.StateDir, digest(d.mark))) // two launchers may have folders at one path
	if d.models, err = modelstore.NewUser(o.ModelStore, "the launcher of "+name); err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	if o.ModelUser == "" {
		d.takeOverLeases()
	}
	fetches := &fetches{host: host, dir: o.ModelStore, memory: o.ModelFetchMemory, logger: d.log}
	d.keeper, err = keeper.New(keeper.Options{
		Dir: o.ModelStore, Limit: o.ModelStorageLimit, Retention: modelstore.Retention(o.ModelRetention), Marks: modelstore.Watermarks{High: o.ModelGCHigh, Low: o.ModelGCLow},
		Program: o.ModelFetch, Stderr: os.Stderr, Start: fetches.start, Pulled: d.metrics.Pulled, Evicted: d.metrics.Evicted, Room: pagecache.Room, Logger: d.log,
	})
	if err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	d.later(d.keeper.Close)
	return nil
}

// takeOverLeases takes over the leases of engines that an earlier release started, which
// named this launcher by its state folder alone.
func (d *Daemon) takeOverLeases() {
	early := map[string]bool{}
	for _, saved := range d.state.Instances {
		early[saved.LeaseHolder()] = saved.Facts.EarlierMark != ""
	}
	if err := d.models.TakeOver("the launcher of "+d.opts.StateDir, func(holder string) bool { return early[holder] }); err != nil {
		d.log.Error("the models of some instances may be removed although they are in use", "error", err)
	}
}

// usedModels are the models that instances use.
type usedModels struct {
	*modelstore.User
	mayRead func(v modelstore.Version, env func(name string) string) error
}

func (u usedModels) MayRead(v modelstore.Version, env func(name string) string) error {
	return u.mayRead(v, env)
}
