// Package launchertest has a scripted launcher, without engines and processes, for
// tests and benches that need thousands of launchers. It speaks the launcher's HTTP
// API as far as a controller of Kubernetes calls it:
//
//	GET    /v2/gpus
//	GET    /v2/vllm/instances
//	GET    /v2/vllm/instances/watch?since=N&heartbeat=D   (NDJSON)
//	POST   /v2/vllm/swap                                  (JSON, with Idempotency-Key)
//	POST   /v2/vllm/instances/{id}/sleep
//	DELETE /v2/vllm/instances/{id}
//
// Every call has its effect at once: swaps take no time, wait for no turn, and do
// not fail; everything fits. Left out are therefore budgets and the ledger, drains,
// timeouts, undoing and dry runs; also tokens, strict bodies, the front door, logs,
// engines' own ports, the other calls, and the members of an instance that tell of
// its process. An instance has a port that nobody listens on. A test of test/e2e
// makes the same calls to it and to the real launcher.
package launchertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a Launcher.
type Options struct {
	GPUs []string // UUIDs
	// Swapped is called for every swap, with its key, whether it woke an instance, when
	// it came and when it was over; nil: no call.
	Swapped func(key string, woke bool, came, over time.Time)
	// Most is how many instances there may be: where a swap makes one more, those that
	// sleep go first, the one that was used longest ago before the others. 0: any number.
	Most int
}

// kept is how many events a watcher may be behind.
const kept = 256

// Launcher is a scripted launcher. It is an [http.Handler] of the control API.
type Launcher struct {
	opts Options
	mux  http.ServeMux

	mu        sync.Mutex
	instances map[string]*launcherapi.Instance
	swaps     map[string]launcherapi.SwapResult // by idempotency key
	swapped   int
	revision  uint64
	events    []launcherapi.WatchEvent // the last ones
	more      chan struct{}            // closed when there are more events
	port      int
}

// New makes a launcher without instances.
func New(opts Options) *Launcher {
	l := &Launcher{opts: opts, instances: map[string]*launcherapi.Instance{}, swaps: map[string]launcherapi.SwapResult{}, more: make(chan struct{}), port: 40000}
	l.mux.HandleFunc("GET /v2/gpus", answer(l.listGPUs))
	l.mux.HandleFunc("GET /v2/vllm/instances", answer(l.list))
	l.mux.HandleFunc("GET /v2/vllm/instances/watch", l.watch)
	l.mux.HandleFunc("POST /v2/vllm/swap", answer(l.swap))
	l.mux.HandleFunc("POST /v2/vllm/instances/{id}/sleep", l.change(l.fallAsleep))
	l.mux.HandleFunc("DELETE /v2/vllm/instances/{id}", l.change(l.remove))
	return l
}

// ServeHTTP implements [http.Handler].
func (l *Launcher) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.mux.ServeHTTP(w, r) }

// answer answers with the result of a call, as JSON.
func answer(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := call(r)
		status, contentType := http.StatusOK, "application/json"
		if err != nil {
			problem := launcherapi.Problem{Detail: err.Error(), Code: launcherapi.CodeInvalid}
			if known, ok := errors.AsType[*launcher.Error](err); ok {
				problem.Code = known.Code
			}
			problem.Status = launcherapi.StatusOf(problem.Code)
			result, status, contentType = problem, problem.Status, launcherapi.ProblemContentType
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(result) // the client is gone when this fails
	}
}

func (l *Launcher) listGPUs(*http.Request) (any, error) {
	list := launcherapi.GPUList{Source: "simulated"}
	for n, uuid := range l.opts.GPUs {
		list.GPUs = append(list.GPUs, launcherapi.GPU{UUID: uuid, Index: n, Product: "scripted", Healthy: true})
	}
	return list, nil
}

func (l *Launcher) list(*http.Request) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := launcherapi.InstanceList{Revision: l.revision, Instances: []launcherapi.Instance{}}
	for _, i := range l.instances {
		list.Instances = append(list.Instances, *i)
	}
	list.TotalInstances, list.RunningInstances = len(l.instances), len(l.instances)
	return list, nil
}

// move brings an instance to a state and tells the watchers. The lock is held.
func (l *Launcher) move(i *launcherapi.Instance, kind launcherapi.EventType, state launcher.State) {
	l.revision++
	i.State, i.StateSince, i.Revision = string(state), time.Now(), l.revision
	i.Status = launcherapi.StatusRunning
	if state.Ended() {
		i.Status = launcherapi.StatusStopped
	}
	l.events = append(l.events, launcherapi.WatchEvent{Type: kind, Object: *i})
	if len(l.events) > 2*kept {
		l.events = slices.Clone(l.events[len(l.events)-kept:])
	}
	close(l.more)
	l.more = make(chan struct{})
}

// change answers with the instance that the path names, after do has changed it
// with the lock held.
func (l *Launcher) change(do func(*launcherapi.Instance)) http.HandlerFunc {
	return answer(func(r *http.Request) (any, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		id := r.PathValue("id")
		i, ok := l.instances[id]
		if !ok {
			return nil, launcher.NotFound(id)
		}
		do(i)
		return *i, nil
	})
}

func (l *Launcher) fallAsleep(i *launcherapi.Instance) {
	if i.State != string(launcher.Awake) {
		return
	}
	l.move(i, launcherapi.EventUpdated, launcher.FallingAsleep)
	i.SleepLevel = 1
	l.move(i, launcherapi.EventUpdated, launcher.Sleeping)
}

func (l *Launcher) remove(i *launcherapi.Instance) {
	delete(l.instances, i.InstanceID)
	l.move(i, launcherapi.EventUpdated, launcher.Stopping)
	i.Port = 0
	l.move(i, launcherapi.EventStopped, launcher.Stopped)
	l.move(i, launcherapi.EventDeleted, launcher.Stopped)
}

func (l *Launcher) swap(r *http.Request) (any, error) {
	came := time.Now()
	var req launcherapi.SwapRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, fmt.Errorf("cannot read the body: %w", err)
	}
	if req.In == nil {
		return nil, errors.New("this launcher swaps nothing out alone: give in")
	}
	key := r.Header.Get("Idempotency-Key")
	result, woke, err := l.swapOnce(key, req)
	if l.opts.Swapped != nil {
		l.opts.Swapped(key, woke, came, time.Now())
	}
	return result, err
}

func (l *Launcher) swapOnce(key string, req launcherapi.SwapRequest) (result launcherapi.SwapResult, woke bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if earlier, ok := l.swaps[key]; ok && key != "" {
		return earlier, false, nil
	}
	l.swapped++
	result = launcherapi.SwapResult{SwapID: fmt.Sprintf("swap-%d", l.swapped), Outcome: launcherapi.OutcomeDone, Out: []launcherapi.Instance{}}
	in, made, err := l.incoming(&req)
	if err != nil {
		return launcherapi.SwapResult{}, false, err
	}
	for _, other := range l.instances {
		if other != in && other.State == string(launcher.Awake) && overlap(other.GPUUUIDs, req.GPUUUIDs) {
			l.fallAsleep(other)
			result.Out = append(result.Out, *other)
		}
	}
	switch {
	case made:
		l.makeRoom()
		l.instances[in.InstanceID] = in
		l.move(in, launcherapi.EventCreated, launcher.Starting)
		l.move(in, launcherapi.EventUpdated, launcher.Awake)
	case in.State == string(launcher.Sleeping):
		l.move(in, launcherapi.EventUpdated, launcher.Waking)
		in.SleepLevel, woke = 0, true
		l.move(in, launcherapi.EventUpdated, launcher.Awake)
	default:
		result.Outcome = launcherapi.OutcomeNoop
	}
	view := *in
	result.In = &view
	l.swaps[key] = result
	return result, woke, nil
}

// makeRoom removes sleepers until there may be one instance more. The lock is held.
func (l *Launcher) makeRoom() {
	for l.opts.Most > 0 && len(l.instances) >= l.opts.Most {
		var oldest *launcherapi.Instance
		for _, i := range l.instances {
			if i.State == string(launcher.Sleeping) && (oldest == nil || i.StateSince.Before(oldest.StateSince)) {
				oldest = i
			}
		}
		if oldest == nil {
			return // all are awake: there is one more than there should be
		}
		l.remove(oldest)
	}
}

// incoming is the instance that is to be awake, and whether the swap makes it.
func (l *Launcher) incoming(req *launcherapi.SwapRequest) (in *launcherapi.Instance, made bool, err error) {
	if id := req.In.InstanceID; id != "" {
		in, ok := l.instances[id]
		if !ok {
			return nil, false, launcher.NotFound(id)
		}
		if len(req.GPUUUIDs) == 0 {
			req.GPUUUIDs = in.GPUUUIDs
		}
		return in, false, nil
	}
	if len(req.GPUUUIDs) == 0 {
		req.GPUUUIDs = req.In.GPUUUIDs
	}
	if req.In.ID == "" || l.instances[req.In.ID] != nil {
		return nil, false, launcher.Existsf("instance %q is there already, or has no name", req.In.ID)
	}
	l.port++
	return &launcherapi.Instance{
		InstanceID: req.In.ID, Args: req.In.Args, GPUUUIDs: req.GPUUUIDs, EnvVars: req.In.EnvVars, Annotations: req.In.Annotations,
		Engine: "vllm", Port: l.port, CreatedAt: time.Now(),
	}, true, nil
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(g string) bool { return slices.Contains(b, g) })
}
