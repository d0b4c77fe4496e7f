package demand

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/demandapi"
)

// The pauses before a front door that cannot be reached is dialled again.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// hearLimit is how long a front door may be silent until it counts as heard: with no requests.
const hearLimit = 10 * time.Second

// Options of a Listener.
type Options struct {
	Client *http.Client
	// Changed is called with each Model whose requests have changed, in no lock of the Listener.
	Changed func(models []types.NamespacedName)
	Logger  *slog.Logger
}

// Listener listens to front doors. Close ends it. It is safe for concurrent use.
type Listener struct {
	opts Options
	ctx  context.Context //nolint:containedctx // of the goroutines, until Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	began   time.Time          // when it was asked first
	sources map[string]*source // by what identifies a front door
}

// source is a front door. Its fields are guarded by the Listener's lock.
type source struct {
	url    string
	stop   context.CancelFunc
	spoken bool      // what it told last counts
	silent time.Time // since when it has not spoken
	counts map[types.NamespacedName]Count
	ended  map[types.NamespacedName]time.Time // when it last reported that a Model has no requests any more
}

// NewListener returns a Listener that listens to nobody yet.
func NewListener(o Options) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	return &Listener{opts: o, ctx: ctx, stop: stop, sources: map[string]*source{}}
}

// Close ends the Listener, and waits for what it has begun.
func (l *Listener) Close() {
	l.mu.Lock()
	l.stop() // Listen begins nothing from here on
	l.mu.Unlock()
	l.work.Wait()
}

// Listen listens to the front doors of a map, and to no others: the URL of the stream of each, by what
// identifies it.
func (l *Listener) Listen(to map[string]string) {
	var gone []types.NamespacedName
	l.mu.Lock()
	for id, s := range l.sources {
		if to[id] != s.url {
			s.stop()
			delete(l.sources, id)
			gone = append(gone, keys(s.counts)...)
		}
	}
	for id, url := range to {
		if l.sources[id] == nil && l.ctx.Err() == nil {
			ctx, stop := context.WithCancel(l.ctx)
			s := &source{url: url, stop: stop, silent: time.Now(), ended: map[types.NamespacedName]time.Time{}}
			l.sources[id] = s
			l.work.Go(func() { l.follow(ctx, s) })
		}
	}
	l.mu.Unlock()
	l.tell(gone)
}

// Of returns the requests for a Model at the front doors that are listened to, and whether all of them were heard:
// each has spoken, or has been silent for hearLimit. If there are none, that is so hearLimit after the first call.
func (l *Listener) Of(model types.NamespacedName) (total Count, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.began.IsZero() {
		l.began = now
	}
	heard = len(l.sources) > 0 || now.Sub(l.began) >= hearLimit
	for _, s := range l.sources {
		heard = heard && (s.spoken || now.Sub(s.silent) >= hearLimit)
		total.Add(s.counts[model])
		if ended := s.ended[model]; now.Sub(ended) < demandapi.SilenceLimit {
			total.Add(Count{Ended: ended})
		}
	}
	return total, heard
}

func (l *Listener) tell(models []types.NamespacedName) {
	if len(models) > 0 && l.opts.Changed != nil {
		l.opts.Changed(models)
	}
}

func keys(counts map[types.NamespacedName]Count) (all []types.NamespacedName) {
	for model := range counts {
		all = append(all, model)
	}
	return all
}

// follow reads the stream of a front door, again and again.
func (l *Listener) follow(ctx context.Context, s *source) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		spoke, err := l.read(ctx, s)
		l.tell(l.forget(s))
		if ctx.Err() != nil {
			return
		}
		if spoke {
			pause = firstPause
		}
		l.opts.Logger.Debug("a front door does not tell its requests; trying again", "url", s.url, "pause", pause, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// read reads the stream of a front door until it ends, or is silent for too long.
func (l *Listener) read(ctx context.Context, s *source) (spoke bool, err error) {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	silence := time.AfterFunc(demandapi.SilenceLimit, func() { cut(fmt.Errorf("it was silent for %s", demandapi.SilenceLimit)) })
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return false, fmt.Errorf("cannot ask: %w", err)
	}
	answer, err := l.opts.Client.Do(request)
	if err != nil {
		return false, fmt.Errorf("cannot ask: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // nothing was written
	if answer.StatusCode != http.StatusOK {
		return false, fmt.Errorf("it answered %s", answer.Status)
	}
	for in := json.NewDecoder(answer.Body); ; {
		var report demandapi.Report
		if err := in.Decode(&report); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return spoke, err
		}
		silence.Reset(demandapi.SilenceLimit)
		spoke = true
		l.tell(l.note(s, report))
	}
}

// note notes what a front door has told, and returns the Models whose requests have changed. The first report
// counts as a change of all its Models, also if nothing else is known of them.
func (l *Listener) note(s *source, report demandapi.Report) (changed []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.spoken = true
	now := time.Now()
	maps.DeleteFunc(s.ended, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= demandapi.SilenceLimit })
	if report.Whole || s.counts == nil {
		changed = keys(s.counts)
		s.counts = map[types.NamespacedName]Count{}
	}
	for _, m := range report.Models {
		model := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
		changed = append(changed, model)
		count := Count{Held: m.Held, InFlight: m.InFlight, Refused: m.Refused}
		if count.isNone() {
			delete(s.counts, model)
			s.ended[model] = now // or the caller would see no change
			continue
		}
		s.counts[model] = count
	}
	return changed
}

// forget forgets what a front door has told.
func (l *Listener) forget(s *source) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := keys(s.counts)
	if s.spoken {
		s.silent = time.Now()
	}
	s.counts, s.spoken = nil, false
	return gone
}
