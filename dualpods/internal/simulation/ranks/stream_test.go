package ranks

import (
	"maps"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// stream is what a controller process hears of a launcher, as nodeview has it.
type stream struct {
	view   nodeview.View
	target nodeview.Target
	number int // what belongs to an earlier connection is dropped
	last   time.Time
}

// Watch begins a stream.
func (p *process) Watch(key string, target nodeview.Target) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if s := p.streams[key]; s != nil && s.target == target || p.dead {
		return
	}
	s := &stream{target: target, view: nodeview.View{Lost: time.Now(), Why: "it has not answered yet"}}
	p.streams[key] = s
	p.connect(key, s, p.w.Between("connect", time.Millisecond, 30*time.Millisecond))
}

func (p *process) connect(key string, s *stream, d time.Duration) {
	s.number++
	number := s.number
	p.w.after(d, func() {
		l := p.w.launchers[key]
		switch {
		case p.dead || p.streams[key] != s || s.number != number:
		case l == nil || !l.answers():
			p.connect(key, s, time.Second)
		default:
			s.view = nodeview.View{Connected: true, GPUs: l.gpus, Instances: map[string]launcherapi.Instance{}, Revision: l.revision}
			for id, e := range l.all {
				s.view.Instances[id] = e.Instance
			}
			p.hears(key)
		}
	})
}

// hears has the controllers look at what a launcher's stream has told.
func (p *process) hears(key string) {
	if node, ok := p.binder.NodeOf(key); ok && !p.dead {
		p.nodes.add(node)
		p.servingsOn(node)
	}
}

// lose breaks the connections of a launcher. The watcher notices after d.
func (l *launcher) lose(d time.Duration) {
	if !l.silent {
		close(l.broken)
		l.broken = make(chan struct{})
	}
	p := l.w.proc
	s := p.streams[l.uid]
	if s == nil || !s.view.Connected {
		return
	}
	s.number++
	number := s.number
	l.w.after(d, func() {
		if s.number != number || p.dead {
			return
		}
		s.view.Connected, s.view.Lost, s.view.Why = false, time.Now(), "the stream broke off"
		p.hears(l.uid)
		p.connect(l.uid, s, 100*time.Millisecond)
	})
}

// tell brings an event to the stream that is open.
func (l *launcher) tell(event launcherapi.WatchEvent) {
	p := l.w.proc
	if p == nil || p.dead {
		return
	}
	s := p.streams[l.uid]
	if s == nil || !s.view.Connected || !l.answers() {
		return
	}
	at := time.Now().Add(l.w.lag("stream"))
	if !at.After(s.last) {
		at = s.last.Add(time.Microsecond)
	}
	s.last = at
	number := s.number
	l.w.after(time.Until(at), func() {
		if s.number != number {
			return
		}
		s.view.Revision = max(s.view.Revision, event.Object.Revision)
		if event.Type == launcherapi.EventDeleted {
			delete(s.view.Instances, event.Object.InstanceID)
		} else {
			s.view.Instances[event.Object.InstanceID] = event.Object
		}
		p.hears(l.uid)
	})
}

// Forget ends a stream.
func (p *process) Forget(key string) {
	p.w.locked(func() { delete(p.streams, key) })
}

// View returns what is known of a launcher.
func (p *process) View(key string) nodeview.View {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := p.streams[key]
	if s == nil {
		return nodeview.View{}
	}
	view := s.view
	view.Instances = maps.Clone(view.Instances)
	return view
}

// One returns what is known of a launcher, with one of its instances.
func (p *process) One(key, id string) nodeview.View {
	view := p.View(key)
	return view.One(id)
}

// Pick returns what is known of a launcher, with some of its instances.
func (p *process) Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := p.View(key)
	return view.Pick(keep)
}
