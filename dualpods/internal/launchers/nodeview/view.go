package nodeview

import (
	"maps"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// View is what a launcher reports.
type View struct {
	// Connected reports that the watch stream is up and the View is current. Otherwise
	// the View is that of the moment when the stream broke.
	Connected bool
	// Lost is when the stream broke. Streams that end at once after a reconnect do not
	// change it. Before the first stream it is when the watch began.
	Lost time.Time
	Why  string   // the launcher is not connected
	GPUs []string // UUIDs of its node
	// Instances are those that the reader asked for. The map is the reader's own; the slices,
	// maps and pointers in an instance are shared and immutable: an event replaces the whole
	// instance. It is nil until the first stream is up.
	Instances map[string]launcherapi.Instance
	Revision  uint64 // Instances have all changes up to this revision
	Certified bool   // the launcher is called by TLS and showed the certificate of its name

	// Models are the models in the launcher's store, by their ids. It is immutable: a
	// change replaces the map. It is nil while they are unknown; WhyNoModels says why.
	Models      map[string]Model
	WhyNoModels string
	// ModelsLost is since when Models are unknown: when their stream broke, or when the
	// watch began.
	ModelsLost time.Time
	// ModelsAsked reports that the launcher has answered for its models since the watch
	// began, or that the call failed.
	ModelsAsked bool
}

// LostFor returns for how long the launcher has not answered; 0: it answers, or was not asked
// yet.
func (v *View) LostFor(now time.Time) time.Duration {
	if v.Connected || v.Lost.IsZero() {
		return 0
	}
	return now.Sub(v.Lost)
}

// One returns the View with the instance of that id alone, if there is one.
func (v *View) One(id string) View {
	out := v.none()
	if i, ok := v.Instances[id]; ok {
		out.Instances[id] = i
	}
	return out
}

// Pick returns the View with those instances alone that keep accepts; nil: none.
func (v *View) Pick(keep func(id string, i launcherapi.Instance) bool) View {
	out := v.none()
	if keep == nil {
		return out
	}
	for id, i := range v.Instances {
		if keep(id, i) {
			out.Instances[id] = i
		}
	}
	return out
}

// none returns the View without its instances; nil remains nil.
func (v *View) none() View {
	out := *v
	if v.Instances != nil {
		out.Instances = map[string]launcherapi.Instance{}
	}
	return out
}

// View returns what the launcher of that key reports, with a copy of all its instances. A
// reader that needs fewer calls One or Pick. The View of a key that is not watched is zero, so
// not connected.
func (s *Set) View(key string) View {
	return s.read(key, func(v *View) View {
		out := *v
		out.Instances = maps.Clone(v.Instances)
		return out
	})
}

// One returns what the launcher of that key reports, with the instance of the given id alone.
// Both are of one moment.
func (s *Set) One(key, id string) View {
	return s.read(key, func(v *View) View { return v.One(id) })
}

// Pick returns what the launcher of that key reports, with those instances alone that keep
// accepts; nil: none. All are of one moment. Events of the launcher wait until keep has been
// called for each instance: keep must be quick, and must not call the Set. A reader that needs
// a few fields notes them in keep and accepts nothing.
func (s *Set) Pick(key string, keep func(id string, i launcherapi.Instance) bool) View {
	return s.read(key, func(v *View) View { return v.Pick(keep) })
}

// read returns what copied copies of the View of a key, under its lock.
func (s *Set) read(key string, copied func(*View) View) View {
	s.mu.Lock()
	l, ok := s.all[key]
	s.mu.Unlock()
	if !ok {
		return View{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := copied(&l.view)
	out.Certified = l.target.Name != "" && s.opts.TLS != nil
	return out
}
