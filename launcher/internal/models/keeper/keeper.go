// Package keeper manages the model store of a serving launcher. It pulls and removes
// models on request, and lists them.
//
// The keeper reads from the disk which models there are, since other processes change
// the store too. It remembers only its own pulls. It owns the store while a pull or a
// removal runs; otherwise other processes can own it.
package keeper

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/singleflight"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a Keeper. Everything is required.
type Options struct {
	Dir   string
	Limit int64 // how many bytes the store may take; 0: all that the disk has
	// Retention applies to models whose wants name none.
	Retention modelstore.Retention
	Program   []string  // modelfetch and its flags
	Stderr    io.Writer // modelfetch's standard error
	// Start starts modelfetch, see modelpull.Options.
	Start func(modelfetch *exec.Cmd) (end func() (oomKilled bool), err error)
	// Pulled is called at the end of each pull. The outcome is "done", "there",
	// "cancelled", or the reason of a failure. networkBytes came over the network.
	Pulled func(outcome string, networkBytes int64)
	// Evicted is called for each evicted model, with how many bytes became free.
	Evicted func(bytes int64)
	// Room returns how many bytes may be read into main memory, if it has to keep the held
	// bytes; see pagecache.Room.
	Room   func(held int64) (int64, error)
	Logger *slog.Logger
}

// Keeper keeps the models of a store.
type Keeper struct {
	modelstore.Reader
	opts Options

	ctx     context.Context //nolint:containedctx // the life of the keeper and its pulls
	cancel  context.CancelCauseFunc
	tasks   sync.WaitGroup
	owning  owning
	warming chan struct{}      // holds a token while a model is read into main memory
	proving singleflight.Group // joins proofs of one version with the same credentials

	mu      sync.Mutex
	closing bool
	pulls   map[string]*pull     // the pulls that are admitted and not over, by the id of the version
	failed  map[string]failure   // the versions that this launcher could not fetch, by id
	proved  map[string]time.Time // when a source let the launcher itself read a private version, by id
	held    map[string]string    // how much of a version main memory held at the last look, by id
	changed chan struct{}        // closed and replaced at each change
}

// failure is why a version was not fetched.
type failure struct {
	manifest fetchapi.Manifest
	ref      string // the ref by which it was wanted
	holder   string
	cause    string
	reason   string
}

// New makes a keeper, and the store's folder if it is missing. It refuses a folder that has
// files of others; see modelstore.Mark.
func New(o Options) (*Keeper, error) {
	if err := modelstore.Mark(o.Dir); err != nil && !mayOnlyRead(err, o.Dir) {
		return nil, err
	}
	r, err := modelstore.Read(o.Dir)
	if err != nil {
		return nil, err
	}
	k := &Keeper{Reader: *r, opts: o, pulls: map[string]*pull{}, failed: map[string]failure{}, proved: map[string]time.Time{}, held: map[string]string{}, changed: make(chan struct{}), warming: make(chan struct{}, 1)}
	if exposed := modelstore.Exposed(o.Dir); exposed != "" {
		o.Logger.Warn("the model store is open to all users", "detail", exposed)
	}
	note := func(text string) { k.opts.Logger.Warn("the launcher has changed the model store", "change", text) }
	k.owning = owning{options: modelstore.Options{Dir: o.Dir, Limit: o.Limit, Retention: o.Retention, Note: note}, turn: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.tasks.Go(func() { k.warmWanted("") })
	k.tasks.Go(k.lookAtIntervals)
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		o.Logger.Warn("changes of the model store by other processes are noticed late", "error", err)
		return k, nil
	}
	k.tasks.Go(func() { k.follow(watch) })
	return k, nil
}

// mayOnlyRead reports whether an error says that a folder which is there cannot be marked
// by this process. Its models can still be listed.
func mayOnlyRead(err error, dir string) bool {
	_, there := os.Stat(dir)
	return there == nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// errClosing is the error of pulls that end with the launcher.
var errClosing = launcher.Unavailablef("the launcher is closing; the fetched files stay, and the next pull resumes from them")

// End ends the pulls, so that waiting callers are answered, and accepts no new ones.
func (k *Keeper) End() {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	k.cancel(errClosing)
}

// Close calls End, and waits until the pulls have ended.
func (k *Keeper) Close() error {
	k.End()
	k.tasks.Wait()
	return nil
}

// follow notifies the watchers when other processes change the store.
func (k *Keeper) follow(watch *fsnotify.Watcher) {
	defer watch.Close()
	for {
		for _, dir := range append(k.Shown(), k.opts.Dir) {
			if err := watch.Add(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				k.opts.Logger.Warn("cannot watch a folder of the model store", "folder", dir, "error", err)
			}
		}
		k.notify()
		select {
		case <-watch.Events:
		case <-watch.Errors: //nolint:errcheck // events were lost; the watchers look again all the same
		case <-k.ctx.Done():
			return
		}
	}
}

// notify wakes all that wait for a change.
func (k *Keeper) notify() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notifyLocked()
}

func (k *Keeper) notifyLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// How long a pull and a removal wait for another process that owns the store. A removal
// outlasts another removal. A pull of another process may take hours, and then the caller is
// told who pulls.
const (
	pullWait    = 10 * time.Second
	removalWait = time.Second
)

// owning is the ownership of the store, which the pulls and removals of this process
// share.
type owning struct {
	options modelstore.Options
	turn    chan struct{} // a lock for opening and closing the store; a channel, so that a context can end the wait for it
	store   *modelstore.Store
	users   int
}

// take returns the store, and opens it for the first user. It waits for another owner for at
// most the limit. Each user calls release once.
func (o *owning) take(ctx context.Context, limit time.Duration) (store *modelstore.Store, release func() error, err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if err := o.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer o.unlock()
	if o.users == 0 {
		if o.store, err = o.open(ctx); err != nil {
			return nil, nil, err
		}
	}
	o.users++
	return o.store, func() error {
		o.turn <- struct{}{}
		defer o.unlock()
		if o.users--; o.users > 0 {
			return nil
		}
		return o.store.Close()
	}, nil
}

func (o *owning) lock(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return launcher.Conflictf("the model store is busy: %w", context.Cause(ctx))
	}
}

func (o *owning) unlock() { <-o.turn }

// open opens the store. It waits for another owner, such as launcher pull.
func (o *owning) open(ctx context.Context) (*modelstore.Store, error) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		store, err := modelstore.Open(o.options)
		locked, busy := errors.AsType[*modelstore.LockedError](err)
		if err == nil {
			return store, nil
		}
		if !busy {
			return nil, launcher.Storagef("%w", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, launcher.Conflictf("%w", locked)
		}
	}
}

// Model describes a version as it is on the disk.
func Model(r *modelstore.Reader, v modelstore.Version) launcherapi.Model {
	m := describe(&v.Manifest)
	m.ID, m.State, m.Path, m.WantedBy = v.Key, launcherapi.ModelReady, r.Files(v.Key), v.WantedBy()
	m.Refs = slices.Sorted(maps.Keys(v.Refs()))
	m.LRUBy, m.Retention, m.PrivateBy, m.WarmBy = v.LRUBy(), string(v.Retention()), v.PrivateBy(), v.WarmBy()
	if published := v.Published; !published.IsZero() {
		m.Published = &published
	}
	if used := v.LastUse; !used.IsZero() {
		m.LastUsed = &used
	}
	if v.Damage != nil {
		m.State, m.Reason = launcherapi.ModelDamaged, v.Damage.Error()
	}
	if _, partial := errors.AsType[*modelstore.PartialError](v.Damage); partial {
		m.State, m.Path = launcherapi.ModelPartial, ""
	}
	return m
}

func describe(m *fetchapi.Manifest) launcherapi.Model {
	lacks := m.Lacks("")
	return launcherapi.Model{
		ID: m.Key(), URI: m.URI, Ref: m.Ref, Revision: m.Revision, Digest: m.Digest(), Bytes: m.Bytes(), Files: len(m.Files),
		Include: m.Include, Exclude: m.Exclude, Lacks: lacks[:min(maxLacks, len(lacks))],
	}
}

// maxLacks is how many of the missing files of a selection are listed.
const maxLacks = 10
