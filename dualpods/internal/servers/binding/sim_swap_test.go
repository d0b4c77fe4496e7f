package binding

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// simSwap is a swap that a launcher was asked for.
type simSwap struct {
	id      string
	by      *incarnation // which asked for it first
	record  string       // the idempotency key without the attempt
	request string
	gpus    []string
	asked   time.Time
	over    chan struct{}
	ended   bool
	at      time.Time // of its end
	begun   bool      // admitted
	off     bool      // called off before
	result  launcherapi.SwapResult
	err     error
}

// swap is POST /v2/vllm/swap; it comes with the lock held and leaves without.
func (l *simLauncher) begin(inc *incarnation, key string, req launcherapi.SwapRequest) (*simSwap, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if earlier := l.swaps[key]; earlier != nil {
		if earlier.request != string(text) {
			l.s.violated("the key %s is used for two requests: %s and %s", key, earlier.request, text)
			return nil, launcher.Conflictf("the key %s was used for another request", key)
		}
		return earlier, nil
	}
	if l.early[key] {
		return nil, launcher.Conflictf("the swap was called off before it came")
	}
	l.s.asked(inc, l, key, req)
	if n := slices.IndexFunc(req.GPUUUIDs, func(g string) bool { return !slices.Contains(l.gpus, g) }); n >= 0 {
		return nil, launcher.Invalidf("body.gpu_uuids", "unknown GPU UUID %q", req.GPUUUIDs[n])
	}
	if req.In.ID != "" && len(req.In.Args) == 0 {
		l.s.violated("the swap %s asks for an instance of nothing", key)
		return nil, launcher.Invalidf("body.in", "no options and no args")
	}
	if id := req.In.InstanceID; id != "" && l.all[id] == nil {
		return nil, launcher.NotFound(id)
	}
	sw := &simSwap{
		id: fmt.Sprintf("swap-%d", len(l.swaps)), by: inc, record: key[:strings.LastIndex(key, ".")], request: string(text), over: make(chan struct{}),
		gpus: req.GPUUUIDs, asked: time.Now(),
	}
	l.swaps[key] = sw
	l.queue = append(l.queue, sw)
	go func() {
		err := l.run(sw, req)
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		for _, id := range sortedKeys(l.all) {
			if i := l.all[id]; i.SwapID == sw.id {
				l.set(i, func(v *launcherapi.Instance) { v.SwapID = "" })
			}
		}
		maps.DeleteFunc(l.turns, func(_ string, t *simSwap) bool { return t == sw })
		l.queue = slices.DeleteFunc(l.queue, func(q *simSwap) bool { return q == sw })
		sw.err, sw.ended, sw.at = err, true, time.Now()
		if i := l.all[req.In.InstanceID+req.In.ID]; i != nil {
			view := i.Instance
			sw.result.In = &view
		}
		l.s.note("launcher %s: %s of %s is over: %v", l.pod, sw.id, key, err)
		close(sw.over)
	}()
	return sw, nil
}

// plan is what a swap is to do.
type simPlan struct {
	in    *simInstance   // nil: it is to be made
	out   []*simInstance // who falls asleep
	evict []*simInstance
}

// busy says that the turn of a swap has not come: others on its GPUs come first,
// or somebody there moves.
func (l *simLauncher) busy(sw *simSwap) bool {
	for _, gpu := range sw.gpus {
		if l.turns[gpu] != nil {
			return true
		}
	}
	for _, earlier := range l.queue {
		if earlier == sw {
			break
		}
		if overlap(earlier.gpus, sw.gpus) {
			return true
		}
	}
	return slices.ContainsFunc(l.on(sw.gpus), func(i *simInstance) bool { return occupies(i) && !awake(i) })
}

// admit takes the GPUs' turn once nobody on them moves.
func (l *simLauncher) admit(sw *simSwap, req launcherapi.SwapRequest) (plan simPlan, err error) {
	for limit := time.Now().Add(time.Minute); ; {
		l.s.mu.Lock()
		if sw.off {
			l.s.mu.Unlock()
			return plan, launcher.Conflictf("the swap was called off while it waited for its turn")
		}
		if !l.dead && !l.busy(sw) {
			sw.begun = true
			l.s.begins(l, sw)
			for _, gpu := range req.GPUUUIDs {
				l.turns[gpu] = sw
			}
			plan, err = l.decide(sw, req)
			l.s.mu.Unlock()
			return plan, err
		}
		pause := l.s.between("turn", 5*time.Millisecond, 30*time.Millisecond)
		dead := l.dead || l.ctx.Err() != nil
		l.s.mu.Unlock()
		if dead || time.Now().After(limit) {
			return plan, launcher.Unavailablef("the launcher is closing, or its GPUs are busy")
		}
		sleep(l.ctx, pause)
	}
}

// decide claims all that a swap is about, or refuses it.
func (l *simLauncher) decide(sw *simSwap, req launcherapi.SwapRequest) (plan simPlan, err error) {
	id := req.In.InstanceID + req.In.ID
	switch plan.in = l.all[id]; {
	case plan.in == nil && req.In.ID == "":
		return plan, launcher.NotFound(id)
	case plan.in != nil && req.In.ID != "":
		return plan, launcher.Existsf("Instance with ID %s already exists", id)
	case plan.in != nil && !awake(plan.in) && plan.in.State != string(launcher.Sleeping):
		return plan, launcher.Conflictf("instance %s is %s", id, plan.in.State)
	}
	if plan.in == nil {
		if err := l.refusesWithout(req.In); err != nil {
			return plan, err
		}
	}
	for _, i := range l.on(req.GPUUUIDs) {
		if i.InstanceID != id && awake(i) {
			plan.out = append(plan.out, i)
		}
	}
	if plan.in == nil || !awake(plan.in) {
		if plan.evict, err = l.makeRoom(sw, id); err != nil {
			return simPlan{}, err
		}
	}
	claim := func(v *launcherapi.Instance) { v.SwapID = sw.id }
	if plan.in != nil {
		l.set(plan.in, claim)
	}
	for _, i := range plan.out {
		l.s.swappedOut(l, i, id)
		l.s.swappedOutAhead(l, i, sw)
		l.set(i, claim)
	}
	for _, i := range plan.evict {
		l.set(i, claim)
	}
	return plan, nil
}

func (l *simLauncher) run(sw *simSwap, req launcherapi.SwapRequest) error {
	plan, err := l.admit(sw, req)
	if err != nil {
		return err
	}
	for _, i := range plan.out {
		if !l.fallAsleep(i) && i.sleepless {
			err = refusesToSleep(i)
		}
	}
	if err != nil {
		l.bringBack(plan.out)
		return err
	}
	var evicting time.Duration
	l.s.locked(func() {
		evicting = l.s.between("evict", time.Millisecond, 2*time.Second) * time.Duration(l.s.draw("evicts", 4)/3)
	})
	sleep(l.ctx, evicting)
	for _, i := range plan.evict {
		l.stop(i)
	}
	err = l.bringIn(sw, req, plan.in)
	if err == nil {
		return nil
	}
	l.s.mu.Lock()
	if in := l.all[req.In.ID]; in != nil && in.SwapID == sw.id {
		l.remove(in)
	} else if in = l.all[req.In.InstanceID]; in != nil && in.State == string(launcher.Awake) {
		l.move(in, launcher.Sleeping, "")
	}
	l.s.mu.Unlock()
	l.bringBack(plan.out)
	return err
}

// bringBack wakes those that had left for a swap that came to nothing.
func (l *simLauncher) bringBack(out []*simInstance) {
	for _, i := range out {
		l.wakeUp(i)
	}
}

// bringIn wakes or starts the one that comes in.
func (l *simLauncher) bringIn(sw *simSwap, req launcherapi.SwapRequest, in *simInstance) error {
	s := l.s
	id := req.In.InstanceID + req.In.ID
	s.mu.Lock()
	for limit := time.Now().Add(10 * time.Second); !l.memoryFree(id, req.GPUUUIDs); s.mu.Lock() {
		s.mu.Unlock()
		if l.ctx.Err() != nil || time.Now().After(limit) {
			return launcher.EngineFailedf("there is no free memory")
		}
		sleep(l.ctx, 20*time.Millisecond)
	}
	if in != nil {
		awake := in.State == string(launcher.Awake)
		s.mu.Unlock()
		if awake || l.wakeUp(in) {
			return nil
		}
		return launcher.EngineFailedf("instance %s did not wake", id)
	}
	l.port++
	in = &simInstance{changed: make(chan struct{}), Instance: launcherapi.Instance{
		InstanceID: id, State: string(launcher.Starting), GPUUUIDs: req.GPUUUIDs, Args: req.In.Args,
		Annotations: req.In.Annotations, Port: l.port, SwapID: sw.id, CreatedAt: time.Now(),
		ModelFrom: launcherapi.ModelFromSource, ModelWhy: "there is no such model in the store",
	}, residue: min(4+s.draw("residue", 37), s.awake/2)}
	in.weigh(s.awake)
	l.all[id] = in
	l.set(in, func(*launcherapi.Instance) {})
	s.note("launcher %s: %s is starting", l.pod, id)
	d := s.between("start", 200*time.Millisecond, 8*time.Second)
	s.mu.Unlock()
	l.rest(in, d)
	if l.finish(in, launcher.Starting, launcher.Awake) {
		return nil
	}
	return launcher.EngineFailedf("instance %s did not start", id)
}
