// Package nodeview keeps a watch stream open to each launcher. It holds what each
// launcher reports: its instances, its models and the GPUs of its node, and whether it
// answers.
package nodeview

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Target says how to reach a launcher.
type Target struct {
	Address string // such as "10.1.2.3:8001"
	Access
	Models bool // it has a model store
}

// Access says how the controller authenticates to a launcher or to the program beside it.
type Access struct {
	// Name is the name in the certificate of a launcher that is called by TLS and asks for
	// a client certificate. Empty: the launcher is called by plain HTTP.
	Name  string
	Token string // empty: the launcher needs none
	// Refused is why the launcher must not be called; empty: it may.
	Refused string
}

// Options configure a [Set].
type Options struct {
	// Changed is called by a goroutine of the Set when the View of a key has changed, but
	// for its models.
	Changed func(key string)
	// ModelsChanged is called when the models of a View have changed. whole reports that
	// the models that are whole or their names have changed, or whether they are known.
	// It may be nil.
	ModelsChanged func(key string, whole bool)
	// Heartbeat is the interval of heartbeats on a quiet stream. A stream that is silent
	// for three intervals is broken. 0: 2 s.
	Heartbeat time.Duration
	// TLS returns the configuration, with the certificates in force, by which to call a
	// launcher of that name. Nil: all launchers are called by plain HTTP.
	TLS func(ctx context.Context, name string) (*tls.Config, error)
	// Header returns headers for calls to launchers; see client.Options.
	Header func(context.Context) map[string]string
	Logger *slog.Logger
}

// Set watches launchers. Its methods are safe for concurrent use.
type Set struct {
	opts    Options
	mu      sync.Mutex
	all     map[string]*launcher
	models  *pool
	closed  bool
	running sync.WaitGroup
}

// New makes an empty Set.
func New(opts Options) *Set {
	if opts.Heartbeat == 0 {
		opts.Heartbeat = 2 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ModelsChanged == nil {
		opts.ModelsChanged = func(string, bool) {}
	}
	return &Set{opts: opts, all: map[string]*launcher{}, models: newPool()}
}

// Watch starts to watch the launcher of that key, such as the UID of its Pod. A launcher
// that is watched already is watched anew only when its target has changed. After Close,
// Watch does nothing.
func (s *Set) Watch(key string, target Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if there, ok := s.all[key]; ok {
		if there.target == target {
			return
		}
		s.stopWatch(key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	const silent = "it has not answered yet"
	begun := time.Now()
	l := &launcher{key: key, target: target, opts: &s.opts, cancel: cancel, models: s.models, pace: rate.NewLimiter(eventsPerSecond, eventsAtOnce), view: View{Lost: begun, Why: silent, WhyNoModels: silent, ModelsLost: begun}}
	s.all[key] = l
	s.running.Go(func() { l.run(ctx) })
}

// Forget ends the watch of that key. Its goroutine ends soon after; Close waits for it.
func (s *Set) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopWatch(key)
}

// stopWatch ends a watch. The caller holds the lock.
func (s *Set) stopWatch(key string) {
	if l, ok := s.all[key]; ok {
		l.cancel()
		delete(s.all, key)
	}
}

// CandidateIDs returns the ids of the stored versions that a name may mean, sorted: all that
// some View has, and perhaps more. [Whole] decides whether a version is meant.
func (s *Set) CandidateIDs(name modelref.Name) []string { return s.models.candidateIDs(name) }

// Streams counts the watched launchers, and those whose watch stream is up.
func (s *Set) Streams() (watched, connected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all {
		l.mu.Lock()
		if l.view.Connected {
			connected++
		}
		l.mu.Unlock()
	}
	return len(s.all), connected
}

// Client returns the client of the launcher of that key; nil when the key is not watched
// or its goroutine has not started yet.
func (s *Set) Client(key string) *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.all[key]
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// Close ends all watches, and waits for their goroutines.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for key := range s.all {
		s.stopWatch(key)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// launcher is one watch.
type launcher struct {
	key    string
	target Target
	opts   *Options
	cancel context.CancelFunc
	models *pool
	pace   *rate.Limiter // of the events of its streams

	mu     sync.Mutex     // of the fields below
	view   View           // Instances is changed in place
	client *client.Client // set once, before its streams are followed
}

// Bounds of the back-off before a launcher is called again.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// longestRefusal is the longest pause after an answer or an event that was longer than
	// any of a launcher's.
	longestRefusal = 30 * time.Second
	// listTimeout bounds the calls before a stream.
	listTimeout = 5 * time.Second
)

// Bounds of the events of a launcher that are read. A launcher that has more of them is
// read more slowly: a swap causes about ten, and all models are told of at once.
const (
	eventsPerSecond = 200
	eventsAtOnce    = 4096
)

// run follows the launcher's streams until ctx ends.
func (l *launcher) run(ctx context.Context) {
	if why := l.target.Refused; why != "" {
		l.markDisconnected(errors.New("it is not called: "+why), false)
		return
	}
	c, end, err := l.connect()
	if err != nil {
		l.markDisconnected(fmt.Errorf("cannot be called at %s: %w", l.target.Address, err), false)
		return
	}
	defer end()
	l.mu.Lock()
	l.client = c
	l.mu.Unlock()
	var models sync.WaitGroup
	defer models.Wait()
	if l.target.Models {
		models.Go(func() { l.followRepeatedly(ctx, l.followModels, l.markModelsLost) })
	}
	l.followRepeatedly(ctx, l.follow, l.markDisconnected)
}

// connect returns a client of the launcher. end closes its idle connections.
func (l *launcher) connect() (c *client.Client, end func(), err error) {
	calls, lasting, end := newHTTP(l.target.Name, l.opts.TLS)
	scheme := "http://"
	if l.target.Name != "" {
		scheme = "https://"
	}
	c, err = client.New(client.Options{
		Server: scheme + l.target.Address, Token: l.target.Token, Heartbeat: l.opts.Heartbeat, Header: l.opts.Header, HTTPClient: calls, Streams: lasting, Pace: l.pace.Wait,
		Reconnect: time.Nanosecond, // after a break the launcher must be listed again first
	})
	return c, end, err
}

// followRepeatedly follows a stream, and reconnects with back-off, until ctx ends. After each break
// it calls lost with the error and whether the stream had held.
func (l *launcher) followRepeatedly(ctx context.Context, follow func(context.Context) (reached bool, err error), lost func(err error, held bool)) {
	for pause := firstPause; ; {
		begun := time.Now()
		reached, err := follow(ctx)
		if ctx.Err() != nil {
			return
		}
		level, longest, tooLong := slog.LevelDebug, longestPause, client.IsTooLong(err)
		if tooLong {
			level, longest = slog.LevelWarn, longestRefusal
		}
		held := reached && time.Since(begun) > longestPause && !tooLong
		if held { // a stream that ends at once keeps backing off
			pause = firstPause
		}
		lost(err, held)
		l.opts.Logger.Log(ctx, level, "the stream of a launcher broke off", "launcher", l.target.Address, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longest)
	}
}

// follow lists the launcher's instances and applies its events until the stream breaks.
// reached reports whether the stream began.
func (l *launcher) follow(ctx context.Context) (reached bool, err error) {
	revision, err := l.list(ctx)
	if err != nil {
		return false, err
	}
	l.opts.Changed(l.key)
	for event, err := range l.client.Watch(ctx, &revision) {
		if err != nil {
			return true, err
		}
		l.apply(event)
		l.opts.Changed(l.key)
	}
	return true, ctx.Err()
}

// list records the launcher's GPUs and instances, and returns their revision. Its
// connection ends with it, and so does the memory that [http.Transport] keeps for one.
func (l *launcher) list(ctx context.Context) (revision uint64, err error) {
	c, end, err := l.connect()
	if err != nil {
		return 0, err
	}
	defer end()
	ask, stop := context.WithTimeout(ctx, listTimeout)
	defer stop()
	gpus, err := c.GPUs(ask)
	if err != nil {
		return 0, err
	}
	list, err := c.List(ask)
	if err != nil {
		return 0, err
	}
	view := View{Connected: true, Revision: list.Revision, Instances: map[string]launcherapi.Instance{}}
	for _, g := range gpus.GPUs {
		view.GPUs = append(view.GPUs, g.UUID)
	}
	for _, i := range list.Instances {
		view.Instances[i.InstanceID] = i
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	view.Lost = l.view.Lost
	view.Models, view.WhyNoModels, view.ModelsLost, view.ModelsAsked = l.view.Models, l.view.WhyNoModels, l.view.ModelsLost, l.view.ModelsAsked
	l.view = view
	return list.Revision, nil
}

// apply changes the View in place: each reader has copies of its instances.
func (l *launcher) apply(event launcherapi.WatchEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Revision = max(l.view.Revision, event.Object.Revision)
	if event.Type == launcherapi.EventDeleted {
		delete(l.view.Instances, event.Object.InstanceID)
		return
	}
	l.view.Instances[event.Object.InstanceID] = event.Object
}

// markDisconnected records that the stream is down, and why. Lost changes only when the stream had
// held.
func (l *launcher) markDisconnected(err error, held bool) {
	why := withoutPort(err)
	l.mu.Lock()
	changed := l.view.Connected || l.view.Why != why
	if held {
		l.view.Lost = time.Now()
	}
	l.view.Connected, l.view.Why = false, why
	l.mu.Unlock()
	if changed {
		l.opts.Changed(l.key)
	}
}
