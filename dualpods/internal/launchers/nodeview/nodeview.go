// Package nodeview keeps one watch stream to each launcher open, and knows what
// the launchers say: their instances, the GPUs of their nodes, and whether they
// answer at all.
package nodeview

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// View is what a launcher says.
type View struct {
	// Connected: its watch stream is up, and what follows is so. Otherwise it is
	// what was so when the stream broke off.
	Connected bool
	// Lost is when the stream broke off: the first of several, one after the other,
	// that ended at once. Of one that never was up it is when the watch began.
	Lost time.Time
	Why  string   // it is not connected
	GPUs []string // UUIDs of its node
	// Instances is never changed: a change makes another map. It is nil until the
	// stream is up for the first time.
	Instances map[string]launcherapi.Instance
	Revision  uint64 // what has happened up to it is in Instances
	Certified bool   // it is called by TLS, and has shown the certificate of its name

	// Models are those of its model store, by their ids. It is never changed: a change
	// makes another map. Nil: not known now; NoModels says why.
	Models   map[string]Model
	NoModels string
	// ModelsLost is since when Models are not known: when the watch began, or when its
	// stream broke off.
	ModelsLost time.Time
	// ModelsAsked: the launcher has told its models since the watch began, or could not
	// be asked for them.
	ModelsAsked bool
}

// Target is where a launcher is.
type Target struct {
	Address string // such as "10.1.2.3:8001"
	Access
	Models bool // it has a model store
}

// Access is how a launcher, or the program beside it, knows the controller.
type Access struct {
	// Name is the one in the certificate of a launcher that is called by TLS, and
	// asks for a certificate. Empty: it is called by plain HTTP.
	Name  string
	Token string // empty: none is asked for
}

// Options configure a [Set].
type Options struct {
	// Changed is called, from one of the Set's goroutines, when what the launcher
	// of that key says has changed.
	Changed func(key string)
	// ModelsChanged is called likewise when its models have changed; whole: which of
	// them it has whole, by which names, or whether it says so at all. Nil: nobody is told.
	ModelsChanged func(key string, whole bool)
	// Heartbeat is how often a quiet stream shows that it lives; one that is
	// silent for three of them has broken off. 0: 2 s.
	Heartbeat time.Duration
	// TLS is how a launcher of that name is called, with the certificates that count
	// now. Nil: all are called by plain HTTP.
	TLS func(ctx context.Context, name string) (*tls.Config, error)
	// Header gives what goes along with calls to launchers; see client.Options.
	Header func(context.Context) map[string]string
	Logger *slog.Logger
}

// Set is the launchers that are watched. Its methods may be called from several
// goroutines at once.
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

// Watch begins to watch the launcher of that key, such as the UID of its Pod, or
// goes on when it does already. One whose target has changed is watched anew.
// After Close nothing is watched any more.
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
		s.drop(key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	const silent = "it has not answered yet"
	begun := time.Now()
	l := &launcher{key: key, target: target, opts: &s.opts, cancel: cancel, models: s.models, view: View{Lost: begun, Why: silent, NoModels: silent, ModelsLost: begun}}
	s.all[key] = l
	s.running.Go(func() { l.run(ctx) })
}

// Forget ends the watch of that key. It does not wait for its goroutine, which
// ends soon; Close does.
func (s *Set) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
}

// drop ends a watch. The lock is held.
func (s *Set) drop(key string) {
	if l, ok := s.all[key]; ok {
		l.cancel()
		delete(s.all, key)
	}
}

// View is what the launcher of that key says. The zero View, of a key that is
// not watched, is not connected.
func (s *Set) View(key string) View {
	s.mu.Lock()
	l, ok := s.all[key]
	s.mu.Unlock()
	if !ok {
		return View{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	view := l.view
	view.Certified = l.target.Name != "" && s.opts.TLS != nil
	return view
}

// Called are ids of the versions in stores that a name may mean, sorted: all of those that
// some View has, and others. Whether a version is meant, [Whole] says.
func (s *Set) Called(name modelref.Name) []string { return s.models.called(name) }

// Streams counts the launchers that are watched, and those of them whose watch
// stream is up.
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

// Client speaks to the launcher of that key; nil when it is not watched, or has
// never answered.
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
		s.drop(key)
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

	mu     sync.Mutex
	view   View
	client *client.Client // not changed once its streams are followed
}

// Bounds of the pause before a launcher is asked again.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// askLimit bounds the questions before a stream.
	askLimit = 5 * time.Second
)

// run keeps its streams open until ctx ends.
func (l *launcher) run(ctx context.Context) {
	c, end, err := l.connect()
	if err != nil {
		l.lose(fmt.Errorf("cannot be asked at %s: %w", l.target.Address, err), false)
		return
	}
	defer end()
	l.mu.Lock()
	l.client = c
	l.mu.Unlock()
	var models sync.WaitGroup
	defer models.Wait()
	if l.target.Models {
		models.Go(func() { l.again(ctx, l.followModels, l.loseModels) })
	}
	l.again(ctx, l.follow, l.lose)
}

// connect makes the client for it. end closes its connections that no call uses.
func (l *launcher) connect() (c *client.Client, end func(), err error) {
	calls, lasting, end := newHTTP(l.target.Name, l.opts.TLS)
	scheme := "http://"
	if l.target.Name != "" {
		scheme = "https://"
	}
	c, err = client.New(client.Options{
		Server: scheme + l.target.Address, Token: l.target.Token, Heartbeat: l.opts.Heartbeat, Header: l.opts.Header, HTTPClient: calls, Streams: lasting,
		Reconnect: time.Nanosecond, // what there is must be listed again before it is known
	})
	return c, end, err
}

// again follows a stream of a launcher again and again until ctx ends. Each time the
// stream breaks off, lost is told why, and whether the stream had held.
func (l *launcher) again(ctx context.Context, follow func(context.Context) (reached bool, err error), lost func(err error, held bool)) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		reached, err := follow(ctx)
		if ctx.Err() != nil {
			return
		}
		held := reached && time.Since(begun) > longestPause && !client.IsTooLong(err)
		if held { // one that ends at once is not asked at once again and again
			pause = firstPause
		}
		lost(err, held)
		l.rest(ctx, pause, err)
	}
}

// rest waits until the pause after a stream that broke off is over, or until ctx ends.
func (l *launcher) rest(ctx context.Context, pause time.Duration, why error) {
	l.opts.Logger.Debug("the stream of a launcher broke off", "launcher", l.target.Address, "error", why)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// follow lists what the launcher has and tells what changes, until the stream
// breaks off. reached says that it began.
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

// list notes what the launcher has, as of a revision. The connection for these questions
// ends with them, and with it what [http.Transport] keeps once it has been used.
func (l *launcher) list(ctx context.Context) (revision uint64, err error) {
	c, end, err := l.connect()
	if err != nil {
		return 0, err
	}
	defer end()
	ask, stop := context.WithTimeout(ctx, askLimit)
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
	view.Models, view.NoModels, view.ModelsLost, view.ModelsAsked = l.view.Models, l.view.NoModels, l.view.ModelsLost, l.view.ModelsAsked
	l.view = view
	return list.Revision, nil
}

func (l *launcher) apply(event launcherapi.WatchEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Revision = max(l.view.Revision, event.Object.Revision)
	l.view.Instances = maps.Clone(l.view.Instances)
	if event.Type == launcherapi.EventDeleted {
		delete(l.view.Instances, event.Object.InstanceID)
		return
	}
	l.view.Instances[event.Object.InstanceID] = event.Object
}

// lose notes that there is no stream any more, and why. One that held breaks off
// now; with any other the launcher is lost since it was before.
func (l *launcher) lose(err error, held bool) {
	why := withoutPort(err)
	l.mu.Lock()
	tell := l.view.Connected || l.view.Why != why
	if held {
		l.view.Lost = time.Now()
	}
	l.view.Connected, l.view.Why = false, why
	l.mu.Unlock()
	if tell {
		l.opts.Changed(l.key)
	}
}

// withoutPort is an error's text without the port at this end of a connection,
// which is another each time.
func withoutPort(err error) string {
	broken, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return err.Error()
	}
	short := *broken
	short.Source = nil
	return strings.ReplaceAll(err.Error(), broken.Error(), short.Error())
}
