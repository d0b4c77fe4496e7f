package simulation

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// stream is what a controller process hears of a launcher, as nodeview has it.
type stream struct {
	l     *launcher
	view  nodeview.View
	asks  bool      // it is being asked
	last  time.Time // when the last of what is under way is heard
	ended bool
}

// running says that a launcher's Pod can be asked.
func running(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// watch begins to listen to a launcher, or goes on.
func (p *process) watch(pod *corev1.Pod) {
	if pod.Labels[podmeta.LabelComponent] != podmeta.ComponentLauncher || p.w.isStranger(pod) {
		return
	}
	l := p.w.programs[string(pod.UID)]
	switch s := p.streams[string(pod.UID)]; {
	case l == nil || !running(pod):
		p.forget(string(pod.UID))
	case s == nil:
		s = &stream{l: l, view: nodeview.View{Lost: time.Now(), WhyNoModels: "it has not answered yet", ModelsLost: time.Now(), Certified: !l.plain}}
		p.streams[l.uid] = s
		p.ask(s)
	}
}

func (p *process) forget(uid string) {
	if s := p.streams[uid]; s != nil {
		s.ended = true
		delete(p.streams, uid)
	}
}

// ask tries to reach a launcher until it answers.
func (p *process) ask(s *stream) {
	if s.asks || s.ended || p.dead {
		return
	}
	s.asks = true
	w := p.w
	d := w.Between("hears "+s.l.name, time.Millisecond, 300*time.Millisecond)
	if s.l.up && s.l.silent { // the question hangs until its time is up
		d = 5 * time.Second
	}
	w.after(d, func() {
		s.asks = false
		switch {
		case s.ended || p.dead:
		case s.l.answers():
			s.view.Connected, s.view.Instances = true, s.l.instancesNow()
			w.after(w.Between("hears models of "+s.l.name, time.Millisecond, time.Second), func() { p.hears(s.l) }) // by a stream of their own
		default:
			p.lose(s, "simulated: it does not answer")
			w.after(w.Between("asks again "+s.l.name, 100*time.Millisecond, time.Second), func() { p.ask(s) })
		}
	})
}

func (p *process) deliver(s *stream, models map[string]launcherapi.Model, instances map[string]launcherapi.Instance) {
	s.view.Models = map[string]nodeview.Model{}
	for id, m := range models {
		s.view.Models[id] = nodeview.NewModel(m)
	}
	s.view.WhyNoModels, s.view.ModelsAsked, s.view.Instances = "", true, instances
	p.toCaches.add()
}

func (p *process) lose(s *stream, why string) {
	if s.view.Connected {
		s.view.Lost = time.Now()
	}
	if s.view.Models != nil {
		s.view.ModelsLost = time.Now()
	}
	told := s.view.Models == nil && s.view.WhyNoModels == why
	s.view.Connected, s.view.Models, s.view.WhyNoModels, s.view.ModelsAsked = false, nil, why, true
	if !told {
		p.toCaches.add()
	}
}

// hears brings what a launcher says now to the process, a moment later and in order.
func (p *process) hears(l *launcher) {
	if p == nil || p.dead {
		return
	}
	s := p.streams[l.uid]
	if s == nil || !s.view.Connected || !l.answers() {
		return
	}
	at := time.Now().Add(p.w.lag("stream " + l.name))
	if !at.After(s.last) {
		at = s.last.Add(time.Microsecond)
	}
	s.last = at
	models, instances := l.shown(), l.instancesNow()
	p.w.after(time.Until(at), func() {
		if !s.ended && !p.dead && s.view.Connected {
			p.deliver(s, models, instances)
		}
	})
}

// reach notes that a launcher can be reached, or not any more, and has its stream break
// off or begin.
func (l *launcher) reach() {
	w := l.w
	now := time.Now()
	if l.answers() {
		l.reachable = now
	} else {
		l.silence = now
	}
	w.truth.look()
	p := w.proc
	if p == nil || p.dead {
		return
	}
	s := p.streams[l.uid]
	if s == nil || !s.view.Connected {
		return
	}
	if l.answers() { // it was silent for a moment
		p.hears(l)
		return
	}
	silent := l.up
	d := w.Between("notices "+l.name, time.Millisecond, 100*time.Millisecond)
	if silent { // three heartbeats
		d = w.Between("misses "+l.name, 4*time.Second, 6*time.Second)
	}
	w.after(d, func() {
		if s.ended || p.dead || !s.view.Connected || silent && l.answers() {
			return
		}
		p.lose(s, "simulated: the stream broke off")
		p.ask(s)
	})
}

// View is what a launcher says.
func (p *process) View(key string) nodeview.View {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if s := p.streams[key]; s != nil {
		return s.view
	}
	p.w.believed(key)
	return nodeview.View{}
}

// One is what a launcher says, with one of its instances.
func (p *process) One(key, id string) nodeview.View {
	view := p.View(key)
	return view.One(id)
}

// Pick is what a launcher says, with some of its instances.
func (p *process) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := p.View(key)
	return view.Pick(keep)
}

// CandidateIDs are the ids of all versions that launchers tell.
func (p *process) CandidateIDs(modelref.Name) (ids []string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, s := range p.streams {
		ids = slices.AppendSeq(ids, maps.Keys(s.view.Models))
	}
	return ids
}

// Client asks a launcher.
func (p *process) Client(key string) modelcache.Client {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if s := p.streams[key]; s != nil {
		return &launcherClient{p, s.l}
	}
	p.w.believed(key)
	return nil
}

type launcherClient struct {
	p *process
	l *launcher
}

// reached waits for an answer of whoever is silent until ctx ends. The lock is held.
func (c *launcherClient) reached(ctx context.Context) error {
	for c.l.up && c.l.silent {
		c.p.w.mu.Unlock()
		sleep(ctx, time.Second)
		c.p.w.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if !c.l.up {
		return errRefused
	}
	return nil
}

func (c *launcherClient) PullModel(ctx context.Context, r launcherapi.ModelRequest) (m launcherapi.Model, err error) {
	w := c.p.w
	w.locked(func() { w.calls.pull(c.p, c.l, r) })
	defer func() { w.locked(func() { w.calls.pulled(c.p, c.l, r, m, err) }) }()
	err = c.p.call(ctx, "launcher "+c.l.name, func() error {
		if err := c.reached(ctx); err != nil {
			return err
		}
		if m, err = c.l.pullModel(ctx, r); err != nil {
			return err
		}
		return c.reached(ctx)
	})
	return m, err
}

func (c *launcherClient) RemoveModel(ctx context.Context, id, holder string) (m launcherapi.Model, err error) {
	w := c.p.w
	w.locked(func() { w.calls.remove(c.p, c.l, id, holder) })
	defer w.locked(func() { w.calls.removed(c.p) })
	err = c.p.call(ctx, "launcher "+c.l.name, func() error {
		if err := c.reached(ctx); err != nil {
			return err
		}
		if err := c.l.removeModel(id, holder); err != nil {
			return err
		}
		return c.reached(ctx)
	})
	return m, err
}
