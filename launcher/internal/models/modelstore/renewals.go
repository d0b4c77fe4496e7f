package modelstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// KeepLeases renews the leases of this launcher until ctx ends. It calls failed with each
// error.
func (u *User) KeepLeases(ctx context.Context, failed func(error)) {
	again := time.NewTicker(renewEvery)
	defer again.Stop()
	for {
		if err := u.renew(); err != nil {
			failed(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// renew renews the leases of this launcher. It takes a lease again that another process has
// removed. A machine that shares the store removes leases that were not renewed for long.
// renew also releases the leases of launchers of this name that have ended.
func (u *User) renew() error {
	missing, err := u.renewFiles()
	boot, bootErr := procfs.BootID()
	if bootErr != nil {
		return errors.Join(err, bootErr)
	}
	if missing {
		err = errors.Join(err, u.restoreLeases(boot))
	}
	return errors.Join(err, u.unlessReadOnly(u.releaseLeftOver(boot)))
}

// unlessReadOnly returns no error if this launcher may not write in the store and has no
// leases there: then nothing depends on what it could not write.
func (u *User) unlessReadOnly(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.held) == 0 && (errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)) {
		return nil
	}
	return err
}

// renewFiles renews the leases that have files, and reports whether a lease of this launcher
// has none. A lease of an earlier release may be another launcher's of this name: it is
// renewed, and nothing follows if that launcher removes it.
func (u *User) renewFiles() (missing bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	own, err := u.ownLeases()
	if err != nil {
		return false, err
	}
	renewed := map[string]bool{}
	for _, l := range own {
		touched := u.touch(l.path)
		gone := errors.Is(touched, os.ErrNotExist)
		if touched != nil && !gone {
			err = errors.Join(err, fmt.Errorf("cannot renew the lease of %s, which another machine may then ignore: %w", l.Holder, touched))
		}
		if l.Launcher == u.launcher {
			renewed[l.Holder] = !gone
			u.held[l.Holder] = l.Key // an earlier life of this launcher may have taken it
		}
	}
	for holder := range u.held {
		missing = missing || !renewed[holder]
	}
	return missing, err
}

// restoreLeases writes the missing files of leases. It does so even if the version was
// removed meanwhile: the engine still runs, and the next version of this key stays.
func (u *User) restoreLeases(boot string) error {
	unlock, err := u.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	own, err := u.ownLeases()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, l := range own {
		there[l.Holder] = there[l.Holder] || l.Launcher == u.launcher
	}
	for holder, key := range u.held {
		if there[holder] {
			continue
		}
		if failed := u.writeLease(key, holder, boot); failed != nil {
			err = errors.Join(err, fmt.Errorf("cannot take the lease of %s again, which was removed: %w", holder, failed))
		}
	}
	return err
}
