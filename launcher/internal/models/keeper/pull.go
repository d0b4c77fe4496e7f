package keeper

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// pull is a pull in progress. The keeper's lock guards the fields that change.
type pull struct {
	launcherapi.ModelRequest
	cancel   context.CancelCauseFunc
	admitted chan struct{} // closed when the source has answered and the store has admitted the version
	over     chan struct{} // closed at the end

	manifest *fetchapi.Manifest // the version that is fetched; nil: the source has not answered, or the pull is over
	began    time.Time
	line     fetchapi.Line // the last line of progress
	note     string        // what the pull waits for

	id  string // the version's id, once the pull is over without an error
	err error
}

// errRemoved is the error of a pull whose model is removed.
var errRemoved = launcher.Conflictf("the model was removed during the fetch; pull it again if it is needed")

// Pull starts a pull, and returns when the source has named the model's files. The fetch
// continues in the background. Pull asks the source even for a model that is there, unless
// it is named by commit or digest, since its branch may have moved.
//
//	the version            effect
//	is there, whole        Ready; see modelpull.Run for when the source is asked
//	is being fetched       joins that fetch
//	partial or damaged     fetches the missing files
//	is not there           fetches it, also if it is removed while the source is asked
//
// Each call shows its own credentials: those of the request, or else the launcher's. A
// call that gets what another call has fetched or is fetching of a private model first
// proves that the source lets it read. If the source refuses, the call's holder does not
// want the version any more.
//
// When ctx ends before the source has answered, the pull ends.
func (k *Keeper) Pull(ctx context.Context, r launcherapi.ModelRequest) (launcherapi.Model, error) {
	if err := selection(r).Check(); err != nil {
		return launcherapi.Model{}, launcher.Invalidf("body", "%w", err)
	}
	if err := fetchapi.CheckAddress(r.URI); err != nil {
		return launcherapi.Model{}, problem(&fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: err.Error()}, modelref.Selection{})
	}
	if err := fetchapi.CheckRef(r.Ref); err != nil {
		return launcherapi.Model{}, launcher.Invalidf("body.ref", "%w", err)
	}
	if r.Credentials != nil {
		var err error
		if r.Credentials, err = r.Credentials.For(r.URI); err != nil {
			return launcherapi.Model{}, launcher.Invalidf("body.credentials", "the credentials cannot be used: %w", err)
		}
	}
	p := &pull{ModelRequest: r, admitted: make(chan struct{}), over: make(chan struct{}), began: time.Now()}
	var running context.Context
	running, p.cancel = context.WithCancelCause(k.ctx)
	k.mu.Lock()
	if k.closing {
		k.mu.Unlock()
		p.cancel(nil)
		return launcherapi.Model{}, errClosing
	}
	k.tasks.Go(func() { k.run(running, p) })
	k.mu.Unlock()
	select {
	case <-p.admitted:
	case <-p.over:
	case <-ctx.Done():
		p.cancel(context.Cause(ctx))
		<-p.over
	}
	k.mu.Lock()
	id, err := p.id, p.err
	if p.manifest != nil {
		id, err = p.manifest.Key(), nil
	}
	k.mu.Unlock()
	if err != nil {
		return launcherapi.Model{}, err
	}
	m, err := k.get(id)
	if launcher.CodeOf(err) == launcherapi.CodeNotFound { // a not_found error would mean that the source has no such model
		err = errRemoved
	}
	return m, err
}

func selection(r launcherapi.ModelRequest) modelref.Selection {
	return modelref.Selection{Include: r.Include, Exclude: r.Exclude}
}

// run runs a pull from its beginning to its end.
func (k *Keeper) run(ctx context.Context, p *pull) {
	defer p.cancel(nil)
	result, err := k.fetch(ctx, p)
	outcome := "done"
	if result.There {
		outcome = "there"
	}
	fetching, joins := errors.AsType[*modelstore.FetchingError](err)
	if err != nil && !joins {
		outcome = causeOf(err)
	}
	if err == nil {
		k.look(result.Version.Key) // main memory often still holds files that were just written
	}
	for _, v := range result.Evicted {
		k.opts.Evicted(v.Bytes)
		k.opts.Logger.Info("evicted a model to make room for another", "uri", v.Manifest.URI, "id", v.Key, "last_used", v.LastUse, "for", p.URI)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case joins:
		p.id = fetching.Key
	case err != nil:
		p.err = problem(err, selection(p.ModelRequest))
	default:
		p.id = result.Version.Key
		k.forgetFailures(p, &result.Version.Manifest)
	}
	fetched := err == nil && !result.There
	if id := p.id; id != "" && (p.Warm || fetched) { // a fetch and the pulls that joined it each do this, and the last to end sees all wants
		k.tasks.Go(func() { k.warmWanted(id) })
	}
	if p.manifest != nil && k.pulls[p.manifest.Key()] == p { // otherwise another pull fetches the version by now
		delete(k.pulls, p.manifest.Key())
		if err != nil && outcome != cancelled {
			k.failed[p.manifest.Key()] = failure{manifest: *p.manifest, ref: p.ref(p.manifest), holder: p.WantedBy, cause: outcome, reason: err.Error()}
		}
	}
	p.manifest = nil
	if !joins {
		k.opts.Pulled(outcome, p.line.NetworkBytes)
		k.opts.Logger.Info("a pull has ended", "uri", p.URI, "outcome", outcome, "network_bytes", p.line.NetworkBytes, "error", err)
	}
	close(p.over)
	k.notifyLocked()
}

func (k *Keeper) fetch(ctx context.Context, p *pull) (result modelpull.Result, err error) {
	store, release, err := k.owning.take(ctx, pullWait)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return modelpull.Run(ctx, modelpull.Options{
		Store: store, Program: k.opts.Program, URI: p.URI, Selection: selection(p.ModelRequest), Ref: p.Ref, Holder: p.WantedBy, Retention: modelstore.Retention(p.Retention), Private: p.Private, Warm: p.Warm,
		UnlessThere: p.UnlessThere,
		Expected:    modelpull.Expected{Bytes: p.ExpectedBytes, Digest: p.ExpectedDigest},
		Credentials: p.Credentials, Stderr: k.opts.Stderr, Start: k.opts.Start,
		Admitted: func(m *fetchapi.Manifest) { k.admitted(p, m) },
		Progress: func(l fetchapi.Line) { k.progress(p, l) },
	})
}

// admitted records the manifest of a pull that the store has admitted.
func (k *Keeper) admitted(p *pull, m *fetchapi.Manifest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case p.manifest == nil:
		close(p.admitted)
	case k.pulls[p.manifest.Key()] == p: // the source changed after the first manifest
		delete(k.pulls, p.manifest.Key())
	}
	p.manifest = m
	k.pulls[m.Key()] = p
	k.forgetFailures(p, m)
	k.notifyLocked()
}

// ref returns the ref by which a pull wants a version.
func (p *pull) ref(m *fetchapi.Manifest) string { return cmp.Or(p.Ref, m.Ref) }

// forgetFailures drops the recorded failure of a version, and the failures of versions
// that the pull's holder wanted by the same ref before. The caller holds the lock.
func (k *Keeper) forgetFailures(p *pull, m *fetchapi.Manifest) {
	maps.DeleteFunc(k.failed, func(id string, f failure) bool {
		before := f.holder == p.WantedBy && f.ref == p.ref(m) && f.manifest.URI == m.URI && f.manifest.SameSelection(m.Selection)
		return before || id == m.Key()
	})
}

func (k *Keeper) progress(p *pull, l fetchapi.Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Type == fetchapi.TypeNote {
		p.note = l.Text
	} else {
		p.line, p.note = l, ""
	}
	k.notifyLocked()
}

// Remove removes a version for a holder, which may be empty. It first ends a fetch of the
// version.
//
//	the version          effect
//	has a lease          error, code conflict, with the holders
//	others want it       with a holder: drops its wants; else error, code conflict
//	is being fetched     the fetch ends, and nothing is left of it
//	is there             removed
//	is not there         error, code not_found
//	another process      error, code conflict, with that process, after removalWait
//	owns the store
func (k *Keeper) Remove(ctx context.Context, id, holder string) (launcherapi.Model, error) {
	model, err := k.get(id)
	if err != nil {
		return model, err
	}
	others := slices.ContainsFunc(model.WantedBy, func(other string) bool { return other != holder })
	if len(model.InUseBy) == 0 && !others { // otherwise the store keeps the version, and the fetch continues
		if err := k.end(ctx, id); err != nil {
			return model, err
		}
	}
	defer k.notify()
	store, release, err := k.owning.take(ctx, removalWait)
	if err != nil {
		return model, err
	}
	err = store.Remove(id, holder)
	if _, none := errors.AsType[*modelstore.NotFoundError](err); none {
		err = nil // the version was never fetched
	}
	if err == nil {
		k.forgetRemoved(id, holder, others)
	}
	_, used := errors.AsType[*modelstore.InUseError](err)
	_, fetched := errors.AsType[*modelstore.FetchingError](err) // a pull has begun meanwhile
	if _, wanted := errors.AsType[*modelstore.WantedError](err); used || fetched || wanted {
		err = launcher.Conflictf("%w", err)
	}
	return model, errors.Join(storageError(err), release())
}

// forgetRemoved drops the recorded failure of a removed version. If other holders still
// want the version, it only takes the holder from the failure.
func (k *Keeper) forgetRemoved(id, holder string, others bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, failed := k.failed[id]
	switch {
	case !failed:
	case holder == "" || !others:
		delete(k.failed, id)
	case f.holder == holder:
		f.holder = ""
		k.failed[id] = f
	}
}

// storageError gives an error the code storage when the launcher may not write to the
// store or the disk is full. It returns other errors unchanged.
func storageError(err error) error {
	ofStore := slices.ContainsFunc([]error{fs.ErrPermission, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT}, func(e error) bool { return errors.Is(err, e) })
	if ofStore && launcher.CodeOf(err) == "" {
		return launcher.Storagef("%w", err)
	}
	return err
}

// end ends the pull of a version, if there is one.
func (k *Keeper) end(ctx context.Context, id string) error {
	k.mu.Lock()
	p := k.pulls[id]
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	p.cancel(errRemoved)
	select {
	case <-p.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancelled is the outcome of a pull that was ended.
const cancelled = "cancelled"

// causeOf returns the reason of a pull's failure, as a short code.
func causeOf(err error) string {
	if failed, ok := errors.AsType[*fetchapi.Error](err); ok {
		return failed.Reason
	}
	if errors.Is(err, errRemoved) || errors.Is(err, errClosing) || errors.Is(err, context.Canceled) {
		return cancelled
	}
	return fetchapi.ReasonInternal
}

// codes are the launcher's error codes for the reasons of failed fetches.
var codes = map[string]string{
	fetchapi.ReasonInvalid: launcherapi.CodeInvalid, fetchapi.ReasonNotFound: launcherapi.CodeNotFound,
	fetchapi.ReasonAccessDenied: launcherapi.CodeForbidden, fetchapi.ReasonCapacityExceeded: launcherapi.CodeStorage,
	fetchapi.ReasonUnavailable: launcherapi.CodeSourceFailed, fetchapi.ReasonIntegrityMismatch: launcherapi.CodeSourceFailed,
	fetchapi.ReasonInternal: launcherapi.CodeInternal,
}

// problem returns the error that the caller of a failed pull gets.
func problem(err error, s modelref.Selection) error {
	failed, ok := errors.AsType[*fetchapi.Error](err)
	if !ok {
		return storageError(err)
	}
	e := &launcher.Error{Code: codes[failed.Reason], Detail: failed.Detail, Cause: err, FailureCause: failed.Reason}
	if failed.Reason == fetchapi.ReasonInvalid {
		e.Location = "body.uri"
		if !s.All() { // it may be that no file is selected
			e.Location = "body"
		}
	}
	return e
}
