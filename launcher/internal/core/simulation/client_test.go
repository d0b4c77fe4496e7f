package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// request is a call of a client, which may be asked several times.
type request struct {
	step
	l       *life
	run     *swap.Run // of a swap; nil: none has begun
	swapID  string    // of the latest swap
	first   time.Time // of the first asking
	began   time.Time // of the latest
	within  time.Duration
	open    bool // it was not answered yet
	asked   int
	stop    context.CancelCauseFunc
	left    bool // the client went away
	cut     bool // a life of the launcher ended before it answered
	answers []answer
}

// answer is what a client was told. Of a verb or a create the error says all.
type answer struct {
	at     time.Time
	result launcherapi.SwapResult
	err    error
}

// Bounds of the time that the launcher may take to answer, which hold whatever the
// engines do.
const (
	createTime = 2*time.Second + forkTime
	verbTime   = 150 * time.Second // drain, the engine's time, the time of its memory, its way back
	deleteTime = 120 * time.Second // two attempts, the time of the memory
	undoGrace  = 15 * time.Second  // beyond the time of a swap
)

// leeway is what is left to calls that take a moment each.
const leeway = 2 * time.Second

func (r *request) isSwap() bool {
	return slices.Contains([]string{"swap in new", "swap in sleeping", "swap out"}, r.what)
}

// driverTime is how long a driver that hangs may hold up a call: for its turn and for its
// answer (gpu.Guarded).
const driverTime = 6 * time.Second

// timeLimit is how long the call may take.
func (r *request) timeLimit() time.Duration {
	switch {
	case r.what == "create":
		return createTime + driverTime
	case r.what == "sleep" || r.what == "wake":
		return verbTime
	case !r.isSwap():
		return deleteTime
	case r.limit > 0:
		return r.limit + undoGrace + leeway
	}
	return limits.Start + undoGrace + leeway
}

var errWentAway = errors.New("the client went away")

// ask has a client make its call.
func (w *world) ask(r *request) {
	l := w.life
	if l == nil || l.isDead() {
		w.mu.Lock()
		r.cut = true // nobody listens; who asks again does so when the launcher is back
		w.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancelCause(l.ctx)
	w.mu.Lock()
	r.l, r.run, r.began, r.within, r.open, r.stop, r.left, r.cut = l, nil, time.Now(), r.timeLimit(), true, stop, false, false
	if r.asked++; r.asked == 1 {
		r.first = r.began
	}
	w.mu.Unlock()
	go func() {
		defer stop(nil)
		result, err := r.call(ctx, l)
		w.answered(r, l, answer{time.Now(), result, err})
	}()
}

// call makes the call, as the API does.
func (r *request) call(ctx context.Context, l *life) (result launcherapi.SwapResult, err error) {
	switch r.what {
	case "create":
		_, err = l.sup.Create(launcher.CreateRequest{ID: r.id, Spec: r.spec()})
	case "delete":
		_, err = l.sup.Delete(ctx, r.id)
	case "delete all":
		_, err = l.sup.DeleteAll(ctx)
	case "sleep":
		if _, err = l.sup.Sleep(r.id, launcher.VerbRequest{Level: r.level, Drain: -1}); err == nil {
			_, err = l.sup.AwaitState(ctx, r.id, launcher.Sleeping)
		}
	case "wake":
		if _, err = l.sup.Wake(r.id, launcher.VerbRequest{}); err == nil {
			_, err = l.sup.AwaitState(ctx, r.id, launcher.Awake)
		}
	default:
		return r.callSwap(ctx, l)
	}
	return result, err
}

func (r *request) callSwap(ctx context.Context, l *life) (launcherapi.SwapResult, error) {
	key := ""
	if r.keyed {
		key = r.request
	}
	run, err := l.swaps.Begin(r.swapRequest(), key)
	var result launcherapi.SwapResult
	if err == nil {
		l.w.mu.Lock()
		r.run, r.swapID = run, run.ID()
		l.w.mu.Unlock()
		result, err = run.Wait(ctx)
	}
	if failed, ok := errors.AsType[*launcher.SwapError](err); ok {
		result = failed.Result
	}
	return result, err
}

// spec is that of a new instance. Its model has the name of the request.
func (s step) spec() launcherapi.InstanceSpec {
	spec := launcherapi.InstanceSpec{Args: []string{s.request, "--gpu-memory-utilization", s.share}, GPUUUIDs: s.gpus, StartMethod: s.start, Engine: s.engine}
	if s.stored != "" {
		spec.Args = append([]string{storedModel, "--served-model-name", s.request}, spec.Args[1:]...)
		spec.ModelCache = s.stored
	}
	if s.threads != "" {
		spec.EnvVars = map[string]launcherapi.EnvValue{preloadVariable: {Value: s.threads}}
	}
	if len(s.gpus) > 1 {
		spec.Args = append(spec.Args, "-tp", fmt.Sprint(len(s.gpus)))
	}
	if s.port != 0 {
		spec.Args = append(spec.Args, "--port", fmt.Sprint(s.port))
	}
	if s.pinned {
		spec.Annotations = map[string]string{launcherapi.AnnotationPinned: "true"}
	}
	return spec
}

func (s step) swapRequest() launcherapi.SwapRequest {
	req := launcherapi.SwapRequest{GPUUUIDs: s.gpus, Canary: s.canary && s.what != "swap out", DryRun: s.dry, Prepare: s.prepare}
	if s.until {
		req.Until = launcherapi.UntilHealthy
	}
	if s.hold != 0 {
		hold := launcherapi.Duration(s.hold)
		req.Hold = &hold
	}
	switch s.what {
	case "swap in new":
		spec := s.spec()
		req.In = &launcherapi.SwapIn{
			ID: s.id, Args: spec.Args, Annotations: spec.Annotations, EnvVars: spec.EnvVars, StartMethod: spec.StartMethod, ModelCache: spec.ModelCache, Engine: spec.Engine,
		}
	case "swap in sleeping":
		req.In = &launcherapi.SwapIn{InstanceID: s.id}
	}
	if s.out != "" || s.level != 0 {
		req.Out = &launcherapi.SwapOut{Mode: s.out, Level: s.level}
	}
	if s.limit != 0 {
		limit := launcherapi.Duration(s.limit)
		req.Timeout = &limit
	}
	return req
}

// answered notes what a client was told, and checks that it is true.
func (w *world) answered(r *request, l *life, a answer) {
	w.mu.Lock()
	took := time.Since(r.began)
	r.open, r.cut = false, l.isDead()
	r.answers = append(r.answers, a)
	left, cut := r.left, r.cut
	w.mu.Unlock()
	w.note("answer to %s %s: %s", r.what, r.request, a)
	switch {
	case cut:
	case left && !errors.Is(a.err, errWentAway) && errors.Is(a.err, context.Canceled):
		w.m.wrong(everyCallIsAnswered, "%s of a client that went away ends with %v", r.step, a.err)
	case took > r.within+w.slack(r):
		w.m.wrong(everyCallIsAnswered, "it took %s to answer %s", took, r.step)
	case !left:
		w.answerIsTrue(r, l, a)
	}
}

// ended is when the swap was over.
func (a answer) ended() time.Time {
	return a.result.BeganAt.Add(time.Duration(a.result.TotalMS * float64(time.Millisecond)))
}

// startAgainAfter are the instances that swaps under way may start again once a swap to a new
// one of the same id is undone: an earlier request made them, so that they stay listed.
func (w *world) startAgainAfter(undone *request) (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r.open && r.what == "swap in sleeping" && slices.ContainsFunc(w.requests, func(earlier *request) bool {
			return earlier.id == r.id && (earlier.what == "create" || earlier.what == "swap in new") && earlier.first.Before(undone.first)
		}) {
			ids = append(ids, r.id)
		}
	}
	return ids
}

func (a answer) String() string {
	text := a.result.Outcome
	if a.err != nil {
		text = fmt.Sprintf("%s %s: %v", text, launcher.CodeOf(a.err), a.err)
	}
	return text
}

// named finds the request of that name; nil: the script has it not, or not yet.
func (w *world) named(name string) *request {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r.request == name {
			return r
		}
	}
	return nil
}

// retry has a client ask again with its key.
func (w *world) retry(r *request) {
	if r == nil {
		return
	}
	w.mu.Lock()
	may := !r.open && (r.keyed || r.what == "create" && r.id != "")
	w.mu.Unlock()
	if may {
		w.ask(r)
	}
}

// goAway has a client go away.
func (w *world) goAway(r *request) {
	if r == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.open {
		r.left = true
		r.stop(errWentAway)
	}
}

// callOff has a client call its swap off.
func (w *world) callOff(r *request) {
	if r != nil && r.keyed && w.life != nil && !w.life.isDead() {
		_, _ = w.life.swaps.CallOff(r.request) // both answers are right
	}
}

// askAgain has those ask again who were cut off by the end of a life.
func (w *world) askAgain() {
	for _, r := range slices.Clone(w.requests) {
		w.mu.Lock()
		again := r.cut && r.persist
		w.mu.Unlock()
		if again {
			w.ask(r)
		}
	}
}
