// Package logrelay has requesters print what their instances say, so that
// `kubectl logs` of a requester shows the log of its model server.
//
// The log of an instance that starts is followed. After that it is brought up to
// date when the state of the instance changes, and before a requester is deleted
// whose instance has failed. A requester knows how far its log is, and the record
// on the launcher Pod where in the instance's log begins what is its own: nothing
// is printed twice, and a controller that is started again leaves nothing out.
package logrelay

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Options configure a [Relay].
type Options struct {
	// Launcher is that of a Pod's UID; nil: it cannot be asked.
	Launcher   func(uid string) Launcher
	Requesters Requesters
	// Workers bounds how many requesters are worked on side by side, and
	// Followers how many of them follow a log. 0: 80 and 64.
	Workers, Followers int
	Log                logr.Logger
}

// Launcher gives the logs of instances, as the launcher's own client does.
type Launcher interface {
	Log(ctx context.Context, id string, first, last int64) (client.LogPart, error)
	CopyLog(ctx context.Context, id string, from int64, w io.Writer) error
	FollowLog(ctx context.Context, id string, from int64, w io.Writer) error
}

// Requesters print logs, by the address of their SPI.
type Requesters interface {
	SetLog(ctx context.Context, address, log, binding string, start int64, chunk []byte) (requesterapi.LogPosition, error)
}

// Bounds of what is spent on one requester.
const (
	chunkTime = 5 * time.Second  // for a chunk to be printed
	copyTime  = 30 * time.Second // for a log to be brought up to date
)

// Relay is a [binding.Observer]. Its methods may be called from several
// goroutines at once.
type Relay struct {
	opts    Options
	ctx     context.Context //nolint:containedctx // the life of the relay
	running sync.WaitGroup

	mu        sync.Mutex
	jobs      map[types.UID]*job
	queue     []*job
	workers   int
	followers int
}

// New makes a relay that works until ctx ends. Close waits for that.
func New(ctx context.Context, opts Options) *Relay {
	if opts.Workers == 0 {
		opts.Workers, opts.Followers = 80, 64
	}
	return &Relay{opts: opts, ctx: ctx, jobs: map[types.UID]*job{}}
}

// Close waits until nothing is relayed any more; the context given to New has
// ended by then.
func (r *Relay) Close() { r.running.Wait() }

// Followers is how many logs are followed now.
func (r *Relay) Followers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.followers
}

// Saw has the log brought up to date where something has changed.
func (r *Relay) Saw(s binding.Sight) {
	uid := s.Observation.Requester.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Leaving && !s.Serving {
		r.drop(uid)
		return
	}
	from, ok := sourceOf(&s.Observation)
	if !ok {
		return
	}
	j := r.job(uid)
	j.source = from
	if from.state != launcher.Starting && j.stop != nil {
		j.stop()
	}
	r.enqueue(j)
}

// Passed implements [binding.Observer]. A requester that is gone was seen leaving.
func (r *Relay) Passed(string, []types.UID) {}

func (r *Relay) job(uid types.UID) *job {
	j := r.jobs[uid]
	if j == nil {
		j = &job{turn: make(chan struct{}, 1)}
		r.jobs[uid] = j
	}
	return j
}

// drop forgets a requester. The lock is held.
func (r *Relay) drop(uid types.UID) {
	if j := r.jobs[uid]; j != nil {
		j.dropped = true
		if j.stop != nil {
			j.stop()
		}
		delete(r.jobs, uid)
	}
}

// enqueue has a worker look at a job that has something to do. The lock is held.
func (r *Relay) enqueue(j *job) {
	if j.queued || !j.due() || r.ctx.Err() != nil {
		return
	}
	j.queued = true
	r.queue = append(r.queue, j)
	if r.workers < r.opts.Workers {
		r.workers++
		r.running.Go(r.work)
	}
}

// work works the queue off.
func (r *Relay) work() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.ctx.Err() != nil {
			r.workers--
			r.mu.Unlock()
			return
		}
		j := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		r.serve(j)
	}
}

// serve brings a log up to date, and again until nothing has changed meanwhile.
func (r *Relay) serve(j *job) {
	for {
		ctx, stop := context.WithCancel(r.ctx)
		r.mu.Lock()
		from, last := j.source, j.words
		j.words = nil
		follow := from.state == launcher.Starting && r.followers < r.opts.Followers
		if follow {
			r.followers++
			j.stop = stop
		}
		r.mu.Unlock()
		err := j.relay(ctx, r.opts, from, follow)
		if last != nil {
			err = errors.Join(err, j.say(r.ctx, r.opts, from, last))
		}
		stopped := ctx.Err() != nil
		stop()
		r.mu.Lock()
		if follow {
			r.followers--
			j.stop = nil
		}
		if err == nil || stopped {
			j.done = from.version()
		} else {
			r.opts.Log.V(1).Info("cannot relay a log", "instance", from.instance, "error", err.Error())
		}
		if err != nil && !stopped || !j.due() || r.ctx.Err() != nil {
			j.queued = false // the next sight begins again
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// Flush brings the log of a requester up to date before it is deleted, and
// returns when that is done.
func (r *Relay) Flush(ctx context.Context, o decide.Observation) error {
	from, ok := sourceOf(&o)
	if !ok {
		return errors.New("the instance has no log")
	}
	r.mu.Lock()
	j := r.job(o.Requester.UID)
	j.source = from
	r.mu.Unlock()
	return j.relay(ctx, r.opts, from, false)
}
