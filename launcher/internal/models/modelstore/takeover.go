package modelstore

import (
	"errors"
	"fmt"
	"os"
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
			taken = os.Remove(l.path)
		}
		if taken != nil && !errors.Is(taken, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("cannot take over the lease of %s: %w", l.Holder, taken))
		}
	}
	return err
}
