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
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// User is a launcher whose instances use models of a store. It reads the store and
// takes leases, while other processes own or use the store.
type User struct {
	Reader
	name     string
	launcher string // tells this launcher from others of the name

	mu     sync.Mutex
	held   map[string]string // the leases that this launcher has: the keys by the holders
	living *os.File          // locked while this launcher lives; nil: there is no store yet
}

// NewUser makes a user of the store in a folder. The name is that of the launcher and of its
// successors, such as "the launcher of /var/lib/hotseat". The mark is the launcher's alone,
// and the same in each of its lives.
func NewUser(dir, name, mark string) (*User, error) {
	r, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return &User{Reader: *r, name: name, launcher: recordName("launcher\x00" + mark), held: map[string]string{}}, nil
}

// lease says that an instance uses a version. It is a file: so it outlives the
// launcher, as engines do, and other processes see it before they remove a version.
//
// Machines may share a store. A lease of this boot counts until it is released. A lease of
// another boot may be another machine's, whose launcher renews it; or it was left when this
// machine restarted, and is not renewed any more.
type lease struct {
	Key    string `json:"key"`
	Holder string `json:"holder"` // such as "instance a"
	User   string `json:"user"`   // the launcher of the instance
	BootID string `json:"boot_id"`
	// Launcher tells the launcher from others of its name; empty in leases of earlier
	// releases.
	Launcher string `json:"launcher,omitempty"`

	path    string
	renewed time.Time // the time of the file
}

// The times of leases, by the clock of the store's file system.
const (
	renewEvery  = time.Minute
	leaseLasts  = 10 * time.Minute // after the last renewal a lease of another boot counts no more
	leaseIsKept = 24 * time.Hour   // so much later its file goes; a machine that was suspended renews it before
)

// counts reports whether a lease keeps its version at a time.
func (l *lease) counts(boot string, now time.Time) bool {
	return l.BootID == boot || l.BootID != "" && now.Sub(l.renewed) < leaseLasts
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
	u.mu.Lock()
	defer u.mu.Unlock()
	if err = u.live(); err == nil {
		err = u.writeLease(key, holder, boot)
	}
	if err == nil {
		u.held[holder] = key
		err = u.releaseEarlier(holder, boot)
	}
	if err != nil {
		return fmt.Errorf("cannot record that %s uses the model %s: %w", holder, v.Manifest.URI, err)
	}
	u.use(key)
	return nil
}

// writeLease writes the file of a lease. The caller holds the lock of the leases.
func (u *User) writeLease(key, holder, boot string) error {
	text, err := json.Marshal(lease{Key: key, Holder: holder, User: u.name, BootID: boot, Launcher: u.launcher})
	if err != nil {
		return err
	}
	written := filepath.Join(u.dir, leasesDir, newRecord)
	if err := u.write(written, text, 0o644); err != nil {
		return err
	}
	return u.rename(written, u.leaseFile(holder, boot))
}

// use records, as the time of the version's folder, that the version is used now. A
// user who may only write leases cannot do that; then the last want counts as last use.
func (u *User) use(key string) {
	_ = u.touch(u.version(key))
}

// releaseEarlier removes the leases of a holder that an earlier release has written: it
// named the files without the launcher, and before that without the boot.
func (u *User) releaseEarlier(holder, boot string) error {
	for _, name := range []string{u.name + "\x00" + holder, u.name + "\x00" + holder + "\x00" + boot} {
		path := filepath.Join(u.dir, leasesDir, recordName(name))
		l, err := readLease(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && l.BootID != boot && l.BootID != "" {
			continue
		}
		if err == nil {
			err = u.removeFile(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lockLeases prevents other processes from taking leases and removing versions. If
// there is no store, it does nothing.
func (r *Reader) lockLeases() (unlock func(), err error) {
	f, err := r.openFile(filepath.Join(r.dir, leasesDir, leaseLock), os.O_RDWR|os.O_CREATE, 0o644)
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
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.held, holder)
	if l, err := readLease(u.leaseFile(holder, boot)); err == nil {
		u.use(l.Key) // before it may be evicted
	}
	if err := errors.Join(u.removeFile(u.leaseFile(holder, boot)), u.releaseEarlier(holder, boot)); err != nil {
		return fmt.Errorf("cannot note that %s does not use its model any more: %w", holder, err)
	}
	return nil
}

// ReleaseOthers ends the leases that an earlier life of this launcher took for holders
// which do not exist any more, and those of launchers of its name that have ended. It
// renames the leases that an earlier release took for holders which exist.
func (u *User) ReleaseOthers(there func(holder string) bool) error {
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	renamed := u.renameEarlier(boot, there)
	leftOver := u.unlessReadOnly(u.releaseLeftOver(boot))
	own, err := u.ownLeases()
	for _, l := range own {
		if !there(l.Holder) {
			err = errors.Join(err, u.Release(l.Holder))
		}
	}
	return errors.Join(renamed, leftOver, err)
}

// ownLeases returns the leases that this launcher has taken since the machine's start, and
// those of earlier releases under its name, which another launcher of the name may have taken.
func (u *User) ownLeases() ([]lease, error) {
	all, err := u.leases()
	if err != nil {
		return nil, err
	}
	boot, err := procfs.BootID()
	return slices.DeleteFunc(all, func(l lease) bool {
		return l.User != u.name || l.BootID != boot || l.Launcher != "" && l.Launcher != u.launcher
	}), err
}

// Holders returns the holders of leases on a version, in words.
func (r *Reader) Holders(key string) ([]string, error) { return r.holders(key, time.Now()) }

// holdersNow is Holders for the owner, who may remove the version then: the clock of the
// file system decides, and not that of this machine.
func (s *Store) holdersNow(key string) ([]string, error) {
	now, err := s.now()
	if err != nil {
		return nil, err
	}
	return s.holders(key, now)
}

// now returns the time by the clock of the store's file system.
func (r *Reader) now() (time.Time, error) {
	lock := filepath.Join(r.dir, leasesDir, leaseLock)
	f, err := r.openFile(lock, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		err = errors.Join(r.touch(lock), f.Close())
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(lock)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot tell the time of the model store: %w", err)
	}
	return info.ModTime(), nil
}

func (r *Reader) holders(key string, now time.Time) ([]string, error) {
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
		if l.Key != key || !l.counts(boot, now) {
			continue
		}
		where := ""
		if l.BootID != boot {
			where = fmt.Sprintf(" (of another machine, or from before a restart: then until %s)", l.renewed.Add(leaseLasts).UTC().Format(time.RFC3339))
		}
		holders = append(holders, l.Holder+" of "+l.User+where)
	}
	slices.Sort(holders)
	return holders, nil
}

// leaseFile returns the path of a lease. A machine may have launchers of one name, and
// another machine too.
func (u *User) leaseFile(holder, boot string) string {
	return filepath.Join(u.dir, leasesDir, recordName(u.name+"\x00"+holder+"\x00"+boot+"\x00"+u.launcher))
}

func recordName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:16])
}

// leases lists all leases, including those that do not count any more.
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
	if err != nil {
		return l, err
	}
	info, err := os.Lstat(path)
	if err == nil {
		l.renewed = info.ModTime()
	}
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

// removeOldLeases removes damaged leases, and those of other boots that were not renewed for
// long.
func (s *Store) removeOldLeases() error {
	boot, err := procfs.BootID()
	if err != nil {
		return err
	}
	now, err := s.now()
	if err != nil {
		return err
	}
	all, err := s.leases()
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.BootID == boot || l.BootID != "" && now.Sub(l.renewed) < leaseIsKept {
			continue
		}
		if err := s.removeFile(l.path); err != nil {
			return fmt.Errorf("cannot remove a lease that does not count any more: %w", err)
		}
	}
	return nil
}

// Shown returns the folders whose entries change when versions, fetches, leases or
// wants do.
func (r *Reader) Shown() []string {
	return []string{filepath.Join(r.dir, modelsDir), filepath.Join(r.dir, stagingDir), filepath.Join(r.dir, leasesDir), filepath.Join(r.dir, wantsDir)}
}
