package daemon

import (
	"cmp"
	"context"
	"fmt"
	"time"

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
	if d.models, err = modelstore.NewUser(o.ModelStore, "the launcher of "+name, d.mark); err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	d.later(d.models.Close)
	if o.ModelUser == "" {
		d.takeOverLeases()
	}
	fetches := &fetches{host: host, dir: o.ModelStore, memory: o.ModelFetchMemory, logger: d.log}
	d.keeper, err = keeper.New(keeper.Options{
		Dir: o.ModelStore, Limit: o.ModelStorageLimit, Retention: modelstore.Retention(o.ModelRetention),
		Program: o.ModelFetch, Stderr: o.Stderr, Start: fetches.start, Pulled: d.metrics.Pulled, Evicted: d.metrics.Evicted, Room: pagecache.Room, Logger: d.log,
	})
	if err != nil {
		return fmt.Errorf("--model-store %s: %w", o.ModelStore, err)
	}
	d.later(d.keeper.Close)
	d.later(d.keepLeases())
	return nil
}

// leasesEnd bounds the wait for a renewal of leases, which a disk may hold up.
const leasesEnd = 5 * time.Second

// keepLeases renews the leases of instances until it is stopped: on other machines with the
// same store they count only while they are renewed.
func (d *Daemon) keepLeases() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.models.KeepLeases(ctx, func(err error) { d.log.Warn("cannot renew the leases of models", "error", err) })
	}()
	return func() error {
		cancel()
		select {
		case <-ended:
			return nil
		case <-time.After(leasesEnd):
			return fmt.Errorf("the model store %s does not answer: its leases are still being renewed", d.opts.ModelStore)
		}
	}
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
