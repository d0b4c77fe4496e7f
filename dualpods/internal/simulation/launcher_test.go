package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// source is one of models.
type source struct {
	uri     string
	bytes   int64
	commits int    // how often its branch has moved
	token   string // that it takes; empty: everybody may read it
	trouble string // reason of the failure of whoever asks; empty: none
	hangs   bool
	slow    bool
}

func (s *source) commit() string { return fmt.Sprintf("c%d", s.commits) }

// launcher is the program of a launcher's Pod: it does with its store what
// launcher/internal/models/keeper does.
type launcher struct {
	w         *world
	uid, name string
	group     string
	disk      *disk
	plain     bool // it is called without TLS
	up        bool // the program runs
	silent    bool // nobody reaches it
	reachable time.Time
	silence   time.Time          // since when nobody reaches it
	fetching  map[string]*pull   // by id of the version
	failed    map[string]failure // by id of the version
	begun     map[*pull]bool     // pulls that ask the source, or fetch
	instances map[string]launcherapi.Instance
}

// pull is one on its way.
type pull struct {
	holder  string
	version *version
	began   time.Time // when it was admitted; zero: it is not yet
	by      *process  // that has asked for it, and heard the answer; nil: none
	slow    bool      // the answer took so long that it might ask for another one meanwhile
	end     func(error)
	ended   bool
}

type failure struct {
	version    *version
	holder     string
	cause, why string
}

func (l *launcher) answers() bool { return l.up && !l.silent }

var (
	errClosing = errors.New("simulated: the launcher is closing")
	errRemoved = errors.New("simulated: somebody has removed the model while it was fetched")
	errRefused = errors.New("simulated: connection refused")
)

// own waits for the turn of the store, which another launcher may have.
func (l *launcher) own(ctx context.Context) error {
	until := time.Now().Add(10 * time.Second)
	for {
		if l.disk.owner == nil || l.disk.owner == l {
			l.disk.owner = l
			l.disk.pulls++
			return nil
		}
		if !time.Now().Before(until) || ctx.Err() != nil || !l.up {
			return &program.Error{Code: launcherapi.CodeConflict, Detail: "another process owns the store"}
		}
		l.w.mu.Unlock()
		sleep(ctx, 100*time.Millisecond)
		l.w.mu.Lock()
	}
}

func (l *launcher) disown() {
	if l.disk.owner != l {
		return
	}
	if l.disk.pulls--; l.disk.pulls <= 0 {
		l.disk.owner, l.disk.pulls = nil, 0
	}
}

// pullModel has a model fetched, and returns once its source has said what it is. The
// lock is held, and given back while it waits.
func (l *launcher) pullModel(ctx context.Context, r launcherapi.ModelRequest) (m launcherapi.Model, err error) {
	w := l.w
	if err := l.own(ctx); err != nil {
		return m, err
	}
	p := &pull{holder: r.WantedBy}
	l.begun[p] = true
	defer func() {
		if p.began.IsZero() {
			delete(l.begun, p)
			l.disown()
		}
	}()
	uri, commit, _ := strings.Cut(r.URI, "@")
	from := w.source(uri)
	if v := w.held(store{l.disk.node, l.disk.path}, r.WantedBy); r.UnlessThere && v != nil && v.whole() && (commit == "" || v.revision == commit) && v.wants[r.WantedBy].private == r.Private {
		return l.admit(p, r, from, v.revision)
	}
	if v := l.disk.versions[uri+"@"+commit]; v != nil && v.whole() && !v.private() && !r.Private {
		return l.admit(p, r, from, commit)
	}
	d := w.Between("asks "+l.name, 20*time.Millisecond, 2*time.Second)
	if from.slow {
		d *= 20
	}
	if from.hangs {
		d = 10 * time.Minute
	}
	w.mu.Unlock()
	sleep(ctx, d)
	w.mu.Lock()
	switch {
	case ctx.Err() != nil || !l.begun[p]:
		return m, errClosing
	case from.trouble != "":
		return m, refusal(from.trouble)
	case from.token != "" && r.Credentials["HF_TOKEN"] != from.token:
		return m, refusal(fetchapi.ReasonAccessDenied)
	}
	if commit == "" {
		commit = from.commit()
	}
	return l.admit(p, r, from, commit)
}

func refusal(reason string) error {
	codes := map[string]string{fetchapi.ReasonAccessDenied: launcherapi.CodeForbidden, fetchapi.ReasonCapacityExceeded: launcherapi.CodeStorage}
	return &program.Error{Code: codes[reason], Detail: "simulated: " + reason, FailureCause: reason}
}

// admit keeps room for a version and has it fetched, unless it is there, or is fetched.
func (l *launcher) admit(p *pull, r launcherapi.ModelRequest, from *source, commit string) (launcherapi.Model, error) {
	w, id := l.w, from.uri+"@"+commit
	v := l.disk.versions[id]
	whole, joins := v != nil && v.whole(), l.fetching[id] != nil
	if v == nil {
		v = &version{id: id, uri: from.uri, revision: commit, bytes: from.bytes, wants: map[string]want{}, leases: map[string]time.Time{}, noted: map[string]time.Time{}}
	}
	noted := want{lru: r.Retention == launcherapi.RetentionLRU || r.Retention == "" && v.wants[r.WantedBy].lru, private: r.Private, warm: r.Warm}
	if !whole && !joins && !l.disk.makeRoom(w, v, !noted.lru) {
		return launcherapi.Model{}, refusal(fetchapi.ReasonCapacityExceeded)
	}
	l.disk.versions[id] = v
	if was, there := v.wants[r.WantedBy]; !there || was != noted {
		delete(v.noted, r.WantedBy)
	}
	for _, other := range l.disk.versions { // of each holder and name there is one
		if other != v && other.uri == v.uri {
			delete(other.wants, r.WantedBy)
			delete(other.noted, r.WantedBy)
		}
	}
	v.wants[r.WantedBy] = noted
	if whole {
		v.used = time.Now()
		if v.noted[r.WantedBy].IsZero() {
			v.noted[r.WantedBy] = time.Now()
		}
	}
	if !whole && !joins {
		w.note("%s begins to fetch %s", l.name, id)
		delete(l.failed, id)
		p.version, p.began = v, time.Now()
		l.fetching[id] = p
		if v.mark { // its room may seem free for a moment
			l.disk.freed = time.Now()
		}
		v.mark, v.damaged = false, false
		v.fetched = min(v.fetched, v.bytes-1)
		l.fetch(p, from)
		if w.secretNext && from.token != "" {
			w.secretNext = false
			w.putSecret("wrong")
		}
	}
	l.changed()
	m := l.shown()[id]
	return m, nil
}

// fetch has a version come bit by bit.
func (l *launcher) fetch(p *pull, from *source) {
	w := l.w
	p.end = func(err error) {
		if p.ended {
			return
		}
		p.ended = true
		delete(l.fetching, p.version.id)
		delete(l.begun, p)
		l.disown()
		if failed, is := errors.AsType[*program.Error](err); is {
			w.note("%s breaks off: %s of %s", l.name, p.version.id, err)
			l.failed[p.version.id] = failure{p.version, p.holder, failed.FailureCause, failed.Detail}
			w.calls.broke(l, p, err)
		}
		l.changed()
	}
	takes := w.Between("fetches "+l.name, 2*time.Second, 60*time.Second)
	if from.slow {
		takes *= 4
	}
	breaks := w.breaks > 0
	if breaks {
		w.breaks--
		takes = w.Between("breaks "+l.name, 10*time.Millisecond, 20*time.Second)
	}
	w.after(takes/2, func() {
		if !p.ended {
			p.version.fetched = max(p.version.fetched, p.version.bytes/2)
			l.changed()
		}
	})
	w.after(takes, func() {
		switch {
		case p.ended:
		case breaks:
			p.end(refusal(fetchapi.ReasonUnavailable))
		default:
			w.note("%s has fetched %s", l.name, p.version.id)
			v := p.version
			v.mark, v.fetched, v.published, v.used = true, v.bytes, time.Now(), time.Now()
			for holder := range v.wants {
				v.noted[holder] = time.Now()
				delete(w.calls.tries, asking{l, holder})
			}
			p.end(nil)
		}
	})
}

// removeModel has a model wanted by a holder no more.
func (l *launcher) removeModel(id, holder string) error {
	v := l.disk.versions[id]
	f, failed := l.failed[id]
	if v == nil && !failed {
		return &program.Error{Code: launcherapi.CodeNotFound, Detail: "simulated: there is none"}
	}
	others := v != nil && (len(v.wants) > 1 || len(v.wants) == 1 && !hasKey(v.wants, holder))
	switch byOther := f.holder != "" && f.holder != holder; {
	case !failed || byOther:
	case others: // for whom it has failed too
		f.holder = ""
		l.failed[id] = f
	default:
		delete(l.failed, id)
	}
	defer l.changed()
	if v == nil {
		return nil
	}
	if len(v.leases) == 0 && !others {
		if p := l.fetching[id]; p != nil {
			p.end(errRemoved)
		}
	}
	if l.disk.owner != nil && l.disk.owner != l {
		return &program.Error{Code: launcherapi.CodeConflict, Detail: "another process owns the store"}
	}
	if len(v.leases) > 0 && !others {
		return &program.Error{Code: launcherapi.CodeConflict, Detail: "it is in use"}
	}
	l.w.note("%s drops %s for %s", l.name, id, holder)
	l.disk.remove(id, holder)
	return nil
}

func hasKey[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

// end ends the program: what it fetches stays as far as it has come.
func (l *launcher) end() {
	if !l.up {
		return
	}
	l.up = false
	l.w.note("%s ends", l.name)
	for _, id := range sorted(l.fetching) {
		l.fetching[id].end(errClosing)
	}
	clear(l.begun)
	if l.disk.owner == l {
		l.disk.owner, l.disk.pulls = nil, 0
	}
	clear(l.failed)
	l.w.calls.ended(l)
	for id := range l.instances {
		for _, v := range l.disk.versions {
			delete(v.leases, id)
		}
	}
	clear(l.instances)
	l.reach()
	l.changed()
}

// begin starts the program.
func (l *launcher) begin() {
	l.up = true
	l.w.note("%s runs", l.name)
	l.reach()
}

// changed has everybody hear who follows a launcher of the store.
func (l *launcher) changed() {
	l.w.truth.look()
	for _, other := range l.w.launchers() {
		if other.disk == l.disk {
			l.w.proc.hears(other)
		}
	}
}
