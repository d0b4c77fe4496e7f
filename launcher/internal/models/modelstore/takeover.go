package modelstore

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// TakeOver makes this user's the leases that holders have under another name of it, which
// an earlier release gave to it.
func (u *User) TakeOver(earlier string, mine func(holder string) bool) error {
	all, err := u.leases()
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.User != earlier || !mine(l.Holder) {
			continue
		}
		taken := u.Lease(l.Key, l.Holder)
		if taken == nil {
			taken = u.remove(l.path)
		}
		if taken != nil && !errors.Is(taken, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("cannot take over the lease of %s: %w", l.Holder, taken))
		}
	}
	return err
}

// renameEarlier writes in this launcher's name the leases that an earlier release wrote for
// holders which exist: only a lease that names its launcher is taken again if it is removed.
func (u *User) renameEarlier(boot string, there func(holder string) bool) error {
	isEarlier := func(l lease) bool { return l.Launcher == "" && there(l.Holder) }
	own, err := u.ownLeases()
	if err != nil || !slices.ContainsFunc(own, isEarlier) {
		return err
	}
	unlock, err := u.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if own, err = u.ownLeases(); err != nil { // a holder may have ended meanwhile
		return err
	}
	for _, l := range own {
		if l.Launcher == u.launcher {
			u.held[l.Holder] = l.Key
		}
	}
	err = u.live()
	for _, l := range own {
		if !isEarlier(l) {
			continue
		}
		var failed error
		key, has := u.held[l.Holder]
		if !has {
			key, failed = l.Key, u.writeLease(l.Key, l.Holder, boot)
		}
		if failed == nil {
			u.held[l.Holder], failed = key, u.releaseEarlier(l.Holder, boot)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("cannot write the lease of %s again, which an earlier release wrote: %w", l.Holder, failed))
		}
	}
	return err
}
