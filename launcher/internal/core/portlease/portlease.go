// Package portlease keeps ports for instances that are yet to be created. The ranks of a server
// over several launchers have to know each other's ports before any of them starts.
//
// A lease has the id of the instance. It ends 60 s after it was asked for last, unless that
// instance is created before; then it ends with the instance.
//
//	lease    who has the ports                        ends
//	waiting  the launcher: nobody else can use them   at its deadline, or when it is given back
//	taken    the instance                             with the instance; if its engine never started,
//	                                                  the lease waits again
package portlease

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Lifetime is how long a lease waits for its instance.
const Lifetime = 60 * time.Second

// MaxWaiting is how many leases may wait at once: each holds up to launcherapi.MaxLeasedPorts
// descriptors.
const MaxWaiting = 32

// Ports keeps ports; package gateway implements it.
type Ports interface {
	// Lease keeps a port that no process uses; 0: any free one.
	Lease(port int) (Port, error)
	// Used keeps the port of an engine that outlived an earlier launcher.
	Used(port int) Port
}

// Port is one port that is kept.
type Port interface {
	Port() int
	// Yield lets an engine use the port, which nobody else gets until Close.
	Yield() error
	Close() error
}

// Options of a Book. Every field is required unless its comment says otherwise.
type Options struct {
	Ports   Ports
	Records statedir.Store
	Writes  *statedir.Queue
	Clock   statedir.Clock // by which records carry times; the zero value is the kernel's
	Logger  *slog.Logger
}

// Book has the leases of one launcher. Its methods may be called from several goroutines.
type Book struct {
	opts    Options
	records *statedir.Writer

	mu     sync.Mutex
	closed bool
	leases map[string]*lease
}

// lease is one lease. The lock of the book guards it.
type lease struct {
	id      string
	ports   []Port
	expires time.Time
	timer   *time.Timer // calls expire; nil once the lease is taken
	taken   bool        // by the instance
	yielded bool        // to the engine of the instance
}

// Saved is the record of a lease on disk.
type Saved struct {
	ID      string         `json:"id"`
	Ports   []int          `json:"ports"`
	Expires time.Time      `json:"expires"`
	Stamp   statedir.Stamp `json:"stamp"`
}

// ReadSaved reads the record of a lease. A lease whose end could not be recorded has expired.
func ReadSaved(f statedir.Found) (Saved, error) {
	var saved Saved
	err := json.Unmarshal(f.Record, &saved)
	switch {
	case err != nil:
	case saved.ID != f.Name:
		err = fmt.Errorf("the record belongs to the lease of %q", saved.ID)
	case len(saved.Ports) == 0 || len(saved.Ports) > launcherapi.MaxLeasedPorts || slices.Min(saved.Ports) < 1 || slices.Max(saved.Ports) > 65535:
		err = fmt.Errorf("a lease cannot have the ports %v", saved.Ports)
	}
	if f.Doubted {
		saved.Expires, saved.Stamp = time.Time{}, statedir.Stamp{}
	}
	return saved, err
}

// New returns a book with the leases that an earlier launcher has saved. used has the leased
// ports of instances that have not ended, by id.
func New(opts Options, saved []Saved, used map[string][]int) *Book {
	b := &Book{opts: opts, leases: map[string]*lease{}}
	b.records = opts.Writes.Writer(opts.Records, func(id string, err error) {
		opts.Logger.Error("cannot record that a port lease has ended", "instance", id, "error", err)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, ports := range used {
		l := &lease{id: id, taken: true, yielded: true}
		for _, port := range ports {
			l.ports = append(l.ports, opts.Ports.Used(port))
		}
		b.leases[id] = l
	}
	for _, s := range saved {
		if used[s.ID] == nil {
			b.restore(s)
		}
	}
	return b
}

// restore continues a lease that waits for its instance, if its ports are still free. The lock is
// held.
func (b *Book) restore(s Saved) {
	b.opts.Clock.Restore(s.Stamp, &s.Expires)
	l := &lease{id: s.ID, expires: s.Expires}
	b.leases[s.ID] = l
	if !time.Now().Before(s.Expires) {
		b.drop(l)
		return
	}
	for _, port := range s.Ports {
		kept, err := b.opts.Ports.Lease(port)
		if err != nil {
			b.opts.Logger.Error("a port lease has ended: another process took its port while the launcher was down", "instance", s.ID, "port", port, "error", err)
			b.drop(l)
			return
		}
		l.ports = append(l.ports, kept)
	}
	b.arm(l)
}

// Lease leases ports for the instance with that id.
//
//	lease of that id        effect
//	none                    free ports are leased
//	waiting, as many ports  the same ports; the deadline is set anew
//	taken, as many ports    the same ports, none: the lease ends with the instance
//	another number          error, code conflict
//
// It returns once that is recorded.
func (b *Book) Lease(id string, count int) (launcherapi.PortLease, error) {
	l, isNew, record, err := b.enter(id, count)
	expires := time.Time{}
	if err == nil {
		expires = l.expires
	}
	if err == nil && record != nil {
		if err = record.Wait(); err != nil {
			err = launcher.Storagef("cannot record the port lease of %s: %w", id, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil && b.leases[id] != l:
		return launcherapi.PortLease{}, launcher.Unavailablef("the port lease of %s has ended meanwhile; ask again", id)
	case err == nil:
		return l.view(), nil
	case isNew && b.leases[id] == l && !l.taken && l.expires.Equal(expires): // no other call has renewed it
		b.drop(l)
	}
	return launcherapi.PortLease{}, err
}

// enter makes or renews a lease. record is its write; nil: it is not written.
func (b *Book) enter(id string, count int) (l *lease, isNew bool, record *statedir.Write, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, nil, launcher.Unavailablef("the launcher is closing")
	}
	l = b.leases[id]
	switch {
	case l == nil && b.waiting() >= MaxWaiting:
		return nil, false, nil, launcher.Unavailablef("%d port leases wait for their instances, which are the most; give one back by DELETE, or try again later", MaxWaiting)
	case l == nil:
		if l, err = b.reserve(id, count); err != nil {
			return nil, false, nil, err
		}
		isNew, b.leases[id] = true, l
	case len(l.ports) != count:
		return nil, false, nil, launcher.Conflictf("the port lease of %s has %d ports, and %d are asked for; give it back first by DELETE, or ask for as many", id, len(l.ports), count)
	case l.taken:
		return l, false, nil, nil
	}
	l.expires = time.Now().Add(Lifetime)
	b.arm(l)
	saved := Saved{ID: id, Ports: l.numbers(), Expires: l.expires, Stamp: b.opts.Clock.Stamp(l.expires)}
	return l, isNew, b.records.Put(id, saved), nil
}

// waiting counts the leases that wait for their instances. The lock is held.
func (b *Book) waiting() (n int) {
	for _, l := range b.leases {
		if !l.taken {
			n++
		}
	}
	return n
}

// reserve reserves free ports. The lock is held.
func (b *Book) reserve(id string, count int) (*lease, error) {
	l := &lease{id: id}
	for range count {
		port, err := b.opts.Ports.Lease(0)
		if err != nil {
			return nil, errors.Join(launcher.Unavailablef("cannot lease a port for %s: %w; try again later", id, err), l.close())
		}
		l.ports = append(l.ports, port)
	}
	return l, nil
}

// GiveBack ends a lease that no instance has taken.
func (b *Book) GiveBack(id string) (launcherapi.PortLease, error) {
	b.mu.Lock()
	l := b.leases[id]
	switch {
	case l == nil:
		b.mu.Unlock()
		return launcherapi.PortLease{}, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "there is no port lease for " + id + ", or it has expired"}
	case l.taken:
		b.mu.Unlock()
		return launcherapi.PortLease{}, launcher.Conflictf("instance %s has the ports of this lease, and gives them back when it ends; delete the instance", id)
	}
	view := l.view()
	b.drop(l)
	b.mu.Unlock()
	_ = b.opts.Writes.Settle() // a failure is logged elsewhere
	return view, nil
}

// Of returns the ports that are leased for an id; nil: none.
func (b *Book) Of(id string) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.leases[id]; l != nil {
		return l.numbers()
	}
	return nil
}

// Take gives the ports of a lease to the instance, which keeps them until [Book.End]. The error
// says that they are not leased any more.
func (b *Book) Take(id string, ports []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.leases[id]
	if l == nil || !slices.Equal(l.numbers(), ports) {
		return launcher.Conflictf("the port lease of %s has ended since the request was read; lease ports again by PUT /v2/port-leases/%s", id, id)
	}
	l.taken = true
	l.disarm()
	return nil
}

// Yield lets the engine of the instance use the ports, just before it starts.
func (b *Book) Yield(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.leases[id]
	if l == nil {
		return
	}
	l.yielded = true
	for _, port := range l.ports {
		if err := port.Yield(); err != nil {
			b.opts.Logger.Error("cannot give a leased port to an engine", "instance", id, "error", err)
		}
	}
}

// End takes the ports back from an instance that is gone, or was not created. If no engine has
// got them, the lease waits for the rest of its time.
func (b *Book) End(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.leases[id]
	switch {
	case l == nil || !l.taken:
	case l.yielded || !time.Now().Before(l.expires):
		b.drop(l)
	default:
		l.taken = false
		b.arm(l)
	}
}

// Close gives all ports back. Leases that wait stay on the disk for the next launcher.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	var err error
	for _, l := range b.leases {
		l.disarm()
		err = errors.Join(err, l.close())
	}
	return err
}

// arm has a lease expire at its deadline. The lock is held.
func (b *Book) arm(l *lease) {
	l.disarm()
	if b.closed {
		return
	}
	deadline := l.expires
	l.timer = time.AfterFunc(time.Until(deadline), func() { b.expire(l, deadline) })
}

// expire ends a lease, unless it was taken or renewed since the timer was set.
func (b *Book) expire(l *lease, deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.leases[l.id] != l || l.taken || !l.expires.Equal(deadline) {
		return
	}
	b.opts.Logger.Info("a port lease has expired", "instance", l.id, "ports", l.numbers())
	b.drop(l)
}

// drop ends a lease. The lock is held.
func (b *Book) drop(l *lease) {
	l.disarm()
	delete(b.leases, l.id)
	b.records.Remove(l.id)
	if err := l.close(); err != nil {
		b.opts.Logger.Error("cannot give back a leased port", "instance", l.id, "error", err)
	}
}

func (l *lease) disarm() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *lease) close() error {
	var err error
	for _, port := range l.ports {
		err = errors.Join(err, port.Close())
	}
	return err
}

func (l *lease) numbers() []int {
	ports := make([]int, 0, len(l.ports))
	for _, port := range l.ports {
		ports = append(ports, port.Port())
	}
	return ports
}

func (l *lease) view() launcherapi.PortLease {
	view := launcherapi.PortLease{ID: l.id, Ports: l.numbers()}
	if !l.taken {
		view.ExpiresAt = l.expires.UTC()
	}
	return view
}
