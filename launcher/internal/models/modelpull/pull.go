// Package modelpull pulls a model into a store. It runs modelfetch as a child, which
// fetches the files. The store admits and publishes the version.
package modelpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Options of a pull.
type Options struct {
	Store              *modelstore.Store
	Program            []string // modelfetch and its flags
	URI                string
	modelref.Selection           // which of the model's files to pull
	Ref                string    // a further ref of the version, such as the branch of the URI's commit; empty: none
	Holder             string    // the holder of the want, see modelstore.Want; empty: a person
	Stderr             io.Writer // modelfetch's standard error
	// Start starts modelfetch. The pull calls end after it has waited for modelfetch, and
	// end reports whether the kernel killed it because of its memory limit. Nil: Run
	// starts modelfetch itself.
	Start func(modelfetch *exec.Cmd) (end func() (oomKilled bool), err error)

	Retention modelstore.Retention // see modelstore.Want
	Private   bool                 // see modelstore.Want
	Warm      bool                 // see modelstore.Want
	Expected                       // a model that differs is refused

	// UnlessThere says that a version which the holder has whole already is not pulled:
	// its want is updated, and the source is not asked.
	UnlessThere bool

	// Credentials are shown to the source; nil: those of this process's environment.
	Credentials fetchapi.Credentials

	Admitted func(*fetchapi.Manifest) // called when the store has admitted the version; again when the source changes
	Progress func(fetchapi.Line)      // called for each line of progress and each note
}

// Result is the result of a pull.
type Result struct {
	Version      modelstore.Version
	There        bool                  // the store had the version, so nothing was fetched
	NetworkBytes int64                 // bytes that came over the network
	Evicted      []modelstore.Eviction // the versions that were evicted for it, even if the pull failed
}

// Run pulls a model. When ctx ends, Run ends the child; the fetched files stay, so that
// a later pull resumes.
//
//	a pull                                                         effect
//	of a private model                                             the source is asked which version it has, and
//	                                                               whether it lets the caller read it
//	by commit or digest, of a version that the store has whole     nothing is asked
//	of another version that the store has whole, for a person      the source is asked briefly; if it does
//	                                                               not answer, that version stands in
//	of anything else                                               the source is asked which version it has
func Run(ctx context.Context, o Options) (Result, error) {
	if o.UnlessThere {
		if v, there, err := o.amend(); there || err != nil {
			return Result{Version: v, There: there}, o.noRoom(err)
		}
	}
	for {
		r, err := runHeld(ctx, o)
		if !errors.Is(err, errRemovedMeanwhile) {
			return r, err
		}
	}
}

// runHeld pulls the model, unless the store has it and that is enough.
func runHeld(ctx context.Context, o Options) (Result, error) {
	h := o.inStore()
	if h.fixed(o.URI) {
		if r, err := o.take(h); !errors.Is(err, modelstore.ErrPrivate) {
			return r, o.noRoom(err)
		}
	}
	standsIn := h.there && o.Holder == "" // a holder asks again
	if standsIn {
		o.Program = append(slices.Clone(o.Program), "--answer-tries=2")
	}
	r, answered, err := runOnce(ctx, o)
	if !answered && standsIn && failedFor(err, fetchapi.ReasonUnavailable) {
		return o.standIn(h, err)
	}
	return r, err
}

// noRoom gives an error of a full disk a reason.
func (o *Options) noRoom(err error) error { return modelstore.NoRoom(o.Store.Dir(), err) }

// runOnce pulls the model with one child. answered says whether the source has said what the
// model consists of.
func runOnce(ctx context.Context, o Options) (r Result, answered bool, err error) {
	c, err := start(o)
	if err != nil {
		return Result{}, false, err
	}
	stop := context.AfterFunc(ctx, c.hangUp)
	defer stop()
	p := &pull{Options: o, child: c}
	if o.Credentials != nil {
		err = c.write(fetchapi.Line{Type: fetchapi.TypeCredentials, Credentials: o.Credentials})
	}
	if err == nil {
		err = o.noRoom(p.follow(ctx))
	}
	if oomKilled := c.end(); oomKilled && err != nil { // end comes before GiveUp: the child writes into the fetch's folder
		err = errOutOfMemory
	}
	if p.fetch != nil {
		denied := failedFor(err, fetchapi.ReasonAccessDenied)
		err = errors.Join(err, p.fetch.GiveUp(failedFor(err, fetchapi.ReasonCapacityExceeded))) // without room, the fetched files go too
		if denied {                                                                             // the caller may not read the version, so it must not want it
			err = errors.Join(err, o.Store.Unwant(p.asked.Key(), o.Holder))
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p.result, p.asked != nil, err
}

// Prove asks the source of a model whether it lets a caller read one byte of it. It
// shows o.Credentials, or those of this process if there are none. It needs no store.
// The error is a *fetchapi.Error when it comes from the source.
func Prove(ctx context.Context, o Options) error {
	o.Program = append(slices.Clone(o.Program), "--tries=2") // a caller waits for the answer
	c, err := start(o)
	if err != nil {
		return err
	}
	defer c.end()
	defer context.AfterFunc(ctx, c.hangUp)()
	if o.Credentials != nil {
		err = c.write(fetchapi.Line{Type: fetchapi.TypeCredentials, Credentials: o.Credentials})
	}
	if err == nil {
		err = c.prove()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func failedFor(err error, reason string) bool {
	e, ok := errors.AsType[*fetchapi.Error](err)
	return ok && e.Reason == reason
}

// pull is a pull in progress.
type pull struct {
	Options
	child  *child
	fetch  *modelstore.Fetch         // the admitted fetch; nil before admission and after publication
	asked  *fetchapi.Manifest        // the manifest that modelfetch announced
	joins  *modelstore.FetchingError // set when another pull fetches the version
	result Result
}

// follow reads the child's lines and acts on each, until the child is done.
func (p *pull) follow(ctx context.Context) error {
	for {
		line, err := p.child.read()
		if err != nil {
			return err
		}
		switch line.Type {
		case fetchapi.TypeManifest:
			if done, err := p.admit(ctx, line.Manifest); done || err != nil {
				return err
			}
		case fetchapi.TypeProved:
			return p.wantProved()
		case fetchapi.TypeProgress:
			p.result.NetworkBytes = line.NetworkBytes
			p.Progress(line)
		case fetchapi.TypeNote:
			p.Progress(line)
		case fetchapi.TypeDone:
			return p.publish(line.Manifest)
		case fetchapi.TypeError:
			if line.Error == nil {
				return errors.New("modelfetch failed without a reason")
			}
			return line.Error
		default:
			return fmt.Errorf("modelfetch wrote a line of the unknown type %q", line.Type)
		}
	}
}

// admit makes the store admit the model, and lets the child fetch it. If the store has
// the version, or another pull fetches it, the pull is done, or for a private version the
// child first proves that it may read it.
func (p *pull) admit(ctx context.Context, m *fetchapi.Manifest) (done bool, err error) {
	if err := p.consider(m); err != nil {
		return false, err
	}
	p.asked = m
	if v, there := p.Store.Version(m.Key()); there && v.Damage != nil {
		_ = p.Store.Mend(ctx, m.Key()) // the files that stay damaged are fetched
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.fetch, err = p.Store.Admit(m, p.wanted(m))
	p.joins, _ = errors.AsType[*modelstore.FetchingError](err)
	if p.joins != nil || errors.Is(err, modelstore.ErrThere) {
		if err = p.wantThere(false); errors.Is(err, modelstore.ErrPrivate) {
			return false, p.child.write(fetchapi.Line{Type: fetchapi.TypeProve})
		}
		return true, err
	}
	if capacity, ok := errors.AsType[*modelstore.CapacityError](err); ok {
		return false, &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: capacity.Error()}
	}
	if err == nil && m.Revision != "" { // without a revision, the store records the want after the fetch
		err = p.fetch.Want(p.wanted(m))
	}
	if err != nil {
		return false, err
	}
	p.Admitted(m)
	p.reportEvictions()
	return false, p.child.write(fetchapi.Line{Type: fetchapi.TypeGo, Staging: p.fetch.Staging(), Have: p.fetch.Have(), MustProve: p.fetch.MustProve})
}

// consider checks a manifest that the child announces, in place of an earlier one if the
// source has changed.
func (p *pull) consider(m *fetchapi.Manifest) error {
	if m == nil {
		return errors.New("modelfetch wrote no manifest")
	}
	if p.fetch != nil {
		if err := p.fetch.GiveUp(true); err != nil {
			return err
		}
		p.fetch = nil
	}
	if !m.SameSelection(p.Clean()) {
		return fmt.Errorf("modelfetch was asked for the files %q, and its manifest has %q", p.Selection, m.Selection)
	}
	if err := p.check(m); err != nil {
		return err
	}
	return checkShards(m)
}

// reportEvictions reports what was evicted for the fetch.
func (p *pull) reportEvictions() {
	for _, v := range p.fetch.Evicted {
		p.result.Evicted = append(p.result.Evicted, v)
		p.Progress(fetchapi.Line{Type: fetchapi.TypeNote, Text: fmt.Sprintf("evicted %s, revision %s, to make room: it was used least recently, at %s", v.Manifest.URI, v.Manifest.Revision, v.LastUse.Format(time.RFC3339))})
	}
}

func (p *pull) wanted(m *fetchapi.Manifest) modelstore.Want {
	return modelstore.Want{Key: m.Key(), URI: m.URI, Selection: m.Selection, Ref: cmp.Or(p.Ref, m.Ref), Holder: p.Holder, Since: time.Now().UTC(), Retention: p.Retention, Private: p.Private, Warm: p.Warm}
}

// publish publishes the fetched files, if they are those that were admitted.
func (p *pull) publish(m *fetchapi.Manifest) error {
	if p.fetch == nil || m == nil {
		return errors.New("modelfetch reported its end before it was told to begin")
	}
	same := m.URI == p.asked.URI && m.SameSelection(p.asked.Selection) && slices.Equal(m.LeftOut, p.asked.LeftOut) && len(m.Files) == len(p.asked.Files) && (p.asked.Revision == "" || m.Revision == p.asked.Revision)
	for n := 0; same && n < len(m.Files); n++ {
		asked, got := p.asked.Files[n], m.Files[n]
		same = asked.Path == got.Path && asked.Size == got.Size && (asked.SHA256 == "" || asked.SHA256 == got.SHA256)
	}
	if !same {
		return errors.New("modelfetch fetched another version than the one that was admitted; pull again")
	}
	if err := p.check(m); err != nil {
		return err
	}
	v, err := p.fetch.Publish(m)
	if err != nil {
		return err
	}
	p.fetch, p.result.Version = nil, v
	return nil
}
