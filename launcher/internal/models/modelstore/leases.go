package modelstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// User is a launcher whose instances use models of a store. It reads the store and
// takes leases, while other processes own or use the store.
type User struct {
	Reader
	name string
}

// NewUser makes a user of the store in a folder. The name is unique to a launcher and
// the same in each of its lives, such as "the launcher of /var/lib/hotseat".
func NewUser(dir, name string) (*User, error) {
	r, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return &User{Reader: *r, name: name}, nil
}

// lease says that an instance uses a version. It is a file: so it outlives the
// launcher, as engines do, and other processes see it before they remove a version. A
// lease ends with a restart of the machine.
type lease struct {
	Key    string `json:"key"`
	Holder string `json:"holder"` // such as "instance a"
	User   string `json:"user"`   // the launcher of the instance
	BootID string `json:"boot_id"`

	path string
}

// Files beside the leases.
const (
	leaseLock = ".lock" // locked while a lease is taken or a version is removed
	newRecord = ".new"  // a lease or want that is being written
)

// Lease keeps a version from being removed until its holder releases it. The version
// must be whole. A holder has at most one lease: a further one replaces it.
func (u *User) Lease(key, holder string) error {
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	unlock, err := u.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	v, ok := u.Version(key)
	if !ok {
		return &NotFoundError{Dir: u.dir, Name: key}
	}
	if v.Damage != nil {
		return &NotWholeError{Version: v}
	}
	text, err := json.Marshal(lease{Key: key, Holder: holder, User: u.name, BootID: boot})
	if err == nil {
		err = os.WriteFile(filepath.Join(u.dir, leasesDir, newRecord), text, 0o644)
	}
	if err == nil {
		err = os.Rename(filepath.Join(u.dir, leasesDir, newRecord), u.leaseFile(holder))
	}
	if err != nil {
		return fmt.Errorf("cannot record that %s uses the model %s: %w", holder, v.Manifest.URI, err)
	}
	u.use(key)
	return nil
}

// use records, as the time of the version's folder, that the version is used now. A
// user who may only write leases cannot do that; then the last want counts as last use.
func (u *User) use(key string) {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, u.version(key), now, 0)
}

// lockLeases prevents other processes from taking leases and removing versions. If
// there is no store, it does nothing.
func (r *Reader) lockLeases() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.dir, leasesDir, leaseLock), os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock the leases of models: this process must be able to write in %s: %w", filepath.Join(r.dir, leasesDir), err)
	}
	return sync.OnceFunc(func() { _ = f.Close() }), nil // nothing was written, so no error matters
}

// Release ends the lease of a holder, if it has one.
func (u *User) Release(holder string) error {
	l, err := readLease(u.leaseFile(holder))
	if err == nil {
		u.use(l.Key) // before it may be evicted
	}
	if err := os.Remove(u.leaseFile(holder)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot note that %s does not use its model any more: %w", holder, err)
	}
	return nil
}

// ReleaseOthers ends the leases that an earlier life of this launcher took for holders
// which do not exist any more.
func (u *User) ReleaseOthers(there func(holder string) bool) error {
	all, err := u.leases()
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.User == u.name && !there(l.Holder) {
			err = errors.Join(err, u.Release(l.Holder))
		}
	}
	return err
}

// Holders returns the holders of leases on a version, in words.
func (r *Reader) Holders(key string) ([]string, error) {
	all, err := r.leases()
	if err != nil {
		return nil, err
	}
	boot, err := procfs.BootID()
	if err != nil {
		return nil, err
	}
	var holders []string
	for _, l := range all {
		if l.Key == key && l.BootID == boot {
			holders = append(holders, l.Holder+" of "+l.User)
		}
	}
	slices.Sort(holders)
	return holders, nil
}

func (u *User) leaseFile(holder string) string {
	sum := sha256.Sum256([]byte(u.name + "\x00" + holder))
	return filepath.Join(u.dir, leasesDir, hex.EncodeToString(sum[:16]))
}

// leases lists all leases, including those from before a restart of the machine.
func (r *Reader) leases() ([]lease, error) {
	files, err := r.ownEntries(leasesDir, isRecord)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot list the leases of models: %w", err)
	}
	var all []lease
	for _, f := range files {
		l, err := readLease(filepath.Join(r.dir, leasesDir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the lease was released meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read a lease of a model: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// readLease reads a lease. A crash of the machine may damage a lease; a damaged one
// names no version and no boot ID.
func readLease(path string) (lease, error) {
	l, err := readRecord[lease](path)
	l.path = path
	return l, err
}

// readRecord reads a lease or a want from a file. It returns an empty record if the
// file is damaged.
func readRecord[T any](path string) (record T, err error) {
	text, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(text, &record) != nil {
		record = *new(T)
	}
	return record, err
}

// removeOldLeases removes the leases from before a restart of the machine.
func (s *Store) removeOldLeases() error {
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	all, err := s.leases()
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.BootID == boot {
			continue
		}
		if err := removeFile(l.path); err != nil {
			return fmt.Errorf("cannot remove a lease from before the machine's restart: %w", err)
		}
	}
	return nil
}

// Shown returns the folders whose entries change when versions, fetches, leases or
// wants do.
func (r *Reader) Shown() []string {
	return []string{filepath.Join(r.dir, modelsDir), filepath.Join(r.dir, stagingDir), filepath.Join(r.dir, leasesDir), filepath.Join(r.dir, wantsDir)}
}
