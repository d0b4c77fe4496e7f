// Package modelpull brings a model into a store: modelfetch fetches, as a child, and
// the store admits and publishes.
package modelpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Options are those of a pull.
type Options struct {
	Store              *modelstore.Store
	Program            []string // modelfetch and its flags
	URI                string
	modelref.Selection           // of its files
	Ref                string    // another name by which the version is wanted, as the branch that the URI's commit is of; empty: none
	Holder             string    // who wants it, see modelstore.Want; empty: nobody holds it
	Stderr             io.Writer // of modelfetch
	// Start starts modelfetch; end is called once it has been waited for, and says
	// whether the kernel has killed it for want of memory. Nil: as any child.
	Start func(modelfetch *exec.Cmd) (end func() (oomKilled bool), err error)

	Retention modelstore.Retention // what whoever asks says of it, see modelstore.Want
	Private   bool                 // likewise
	Warm      bool                 // likewise
	Expected                       // of the model, else it is not taken

	// UnlessThere: where the holder has the model whole already, what is said of it is
	// noted, and the source is not asked.
	UnlessThere bool

	// Credentials are shown to the source in place of those of this process's own
	// environment; nil: those.
	Credentials fetchapi.Credentials

	Admitted func(*fetchapi.Manifest) // told what is fetched, once there is room for it; again where the source has changed
	Progress func(fetchapi.Line)      // told of each line of progress and each note
}

// Result is what a pull has brought.
type Result struct {
	Version      modelstore.Version
	There        bool                  // nothing had to be fetched
	NetworkBytes int64                 // that came over the network
	Evicted      []modelstore.Eviction // what had to go for it, also where the pull has failed
}

// Run pulls a model. When the context ends, so does the child; what it has fetched
// stays, to be resumed.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.UnlessThere {
		if v, there, err := o.amend(); there || err != nil {
			return Result{Version: v, There: there}, described(err)
		}
	}
	for {
		if r, err := once(ctx, o); !errors.Is(err, errGone) {
			return r, err
		}
	}
}

// described gives errors of the store a reason where its disk is full.
func described(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: fmt.Sprintf("the disk of the model store is full: %v; free some room, and fetch again", err)}
	}
	return err
}

// once has one child pull it.
func once(ctx context.Context, o Options) (r Result, err error) {
	c, err := start(o)
	if err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, c.hangUp)
	defer stop()
	p := &pull{Options: o, child: c}
	if o.Credentials != nil {
		err = c.write(fetchapi.Line{Type: fetchapi.TypeCredentials, Credentials: o.Credentials})
	}
	if err == nil {
		err = described(p.follow())
	}
	if oomKilled := c.end(); oomKilled && err != nil { // before the fetch: the child writes where the fetch has its room
		err = errOutOfMemory
	}
	if p.fetch != nil {
		denied := failedFor(err, fetchapi.ReasonAccessDenied)
		err = errors.Join(err, p.fetch.GiveUp(failedFor(err, fetchapi.ReasonCapacityExceeded))) // then it is no good where it is
		if denied && o.Holder != "" {                                                           // what somebody else fetches is not this one's
			err = errors.Join(err, o.Store.Unwant(p.asked.Key(), o.Holder))
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p.result, err
}

// Prove has the source of a model let somebody read a byte of it, by o.Credentials or,
// without any, by what this process has itself. It takes no store. The error is a
// *fetchapi.Error where the source was asked.
func Prove(ctx context.Context, o Options) error {
	o.Program = append(slices.Clone(o.Program), "--tries=2") // somebody waits for the answer
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

// pull is one on its way.
type pull struct {
	Options
	child  *child
	fetch  *modelstore.Fetch // admitted; nil before and after
	asked  *fetchapi.Manifest
	joins  *modelstore.FetchingError // somebody else fetches it; nil: nobody does
	result Result
}

// follow does what the child's lines call for, until it is done.
func (p *pull) follow() error {
	for {
		line, err := p.child.read()
		if err != nil {
			return err
		}
		switch line.Type {
		case fetchapi.TypeManifest:
			if err := p.admit(line.Manifest); err != nil {
				return err
			}
		case fetchapi.TypeProved:
			return p.proved()
		case fetchapi.TypeProgress:
			p.result.NetworkBytes = line.NetworkBytes
			p.Progress(line)
		case fetchapi.TypeNote:
			p.Progress(line)
		case fetchapi.TypeDone:
			return p.publish(line.Manifest)
		case fetchapi.TypeError:
			if line.Error == nil {
				return errors.New("modelfetch has failed and does not say why")
			}
			return line.Error
		default:
			return fmt.Errorf("modelfetch says a line of the unknown type %q", line.Type)
		}
	}
}

// admit keeps the room for the model and lets the child fetch it. What is there, or is
// fetched by somebody else, the child need only be let read by the source.
func (p *pull) admit(m *fetchapi.Manifest) (err error) {
	if m == nil {
		return errors.New("modelfetch gives no manifest")
	}
	if p.fetch != nil { // the source has changed meanwhile
		if err := p.fetch.GiveUp(true); err != nil {
			return err
		}
		p.fetch = nil
	}
	if !m.SameSelection(p.Clean()) {
		return fmt.Errorf("modelfetch was asked for %q of the files, and gives %q", p.Selection, m.Selection)
	}
	if err := p.check(m); err != nil {
		return err
	}
	p.asked = m
	p.fetch, err = p.Store.Admit(m, p.wanted(m))
	p.joins, _ = errors.AsType[*modelstore.FetchingError](err)
	if p.joins != nil || errors.Is(err, modelstore.ErrThere) {
		return p.child.write(fetchapi.Line{Type: fetchapi.TypeProve})
	}
	if capacity, ok := errors.AsType[*modelstore.CapacityError](err); ok {
		return &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: capacity.Error()}
	}
	if err == nil && m.Revision != "" { // else the store notes it when it knows of which version it is
		err = p.Store.Want(p.wanted(m))
	}
	if err != nil {
		return err
	}
	p.Admitted(m)
	p.evicted(0)
	return p.child.write(fetchapi.Line{Type: fetchapi.TypeGo, Staging: p.fetch.Staging(), Have: p.fetch.Have()})
}

// evicted tells what had to go for the fetch after the first so many.
func (p *pull) evicted(first int) {
	for _, v := range p.fetch.Evicted[first:] {
		p.result.Evicted = append(p.result.Evicted, v)
		p.Progress(fetchapi.Line{Type: fetchapi.TypeNote, Text: fmt.Sprintf("%s, revision %s, is removed to make room: it was used longest ago, at %s", v.Manifest.URI, v.Manifest.Revision, v.LastUse.Format(time.RFC3339))})
	}
}

func (p *pull) wanted(m *fetchapi.Manifest) modelstore.Want {
	return modelstore.Want{Key: m.Key(), URI: m.URI, Selection: m.Selection, Ref: cmp.Or(p.Ref, m.Ref), Holder: p.Holder, Since: time.Now().UTC(), Retention: p.Retention, Private: p.Private, Warm: p.Warm}
}

// publish publishes what the child has fetched, when that is what was admitted.
func (p *pull) publish(m *fetchapi.Manifest) error {
	if p.fetch == nil || m == nil {
		return errors.New("modelfetch says that it is done and was not told to begin")
	}
	same := m.URI == p.asked.URI && m.SameSelection(p.asked.Selection) && slices.Equal(m.LeftOut, p.asked.LeftOut) && len(m.Files) == len(p.asked.Files) && (p.asked.Revision == "" || m.Revision == p.asked.Revision)
	for n := 0; same && n < len(m.Files); n++ {
		asked, got := p.asked.Files[n], m.Files[n]
		same = asked.Path == got.Path && asked.Size == got.Size && (asked.SHA256 == "" || asked.SHA256 == got.SHA256)
	}
	if !same {
		return errors.New("modelfetch has fetched something else than was admitted")
	}
	if err := p.check(m); err != nil {
		return err
	}
	before := len(p.fetch.Evicted)
	v, err := p.fetch.Publish(m)
	p.evicted(before)
	if err != nil {
		return err
	}
	p.fetch, p.result.Version = nil, v
	return nil
}
