package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// The engine reads a model that is in the store from there: the launcher gives it the
// folder, and clients call the model by the name in the request. From before its process
// starts until it is released, the instance has a lease on that version, which
// prevents its removal.

// modelSource says where an instance's model is read.
type modelSource struct {
	From   string `json:"from,omitempty"`  // launcherapi.ModelFromCache, …Source; empty: the launcher has no store
	Why    string `json:"why,omitempty"`   // the model is not read from the store
	ID     string `json:"id,omitempty"`    // of the version in the store
	Claim  string `json:"claim,omitempty"` // whose store that is; empty: the launcher's own
	Folder string `json:"folder,omitempty"`
}

// leased reports whether the model is read from the launcher's own store, under a lease.
func (m modelSource) leased() bool { return m.ID != "" && m.Claim == "" }

// schemes are the schemes of addresses that models are pulled from and that no engine
// reads. They leave out s3 and gs, which vLLM streams if it has runai-model-streamer.
var schemes = []string{modelref.HubScheme, "https://", "http://", "file://", "azblob://", "oci://", modelref.OllamaScheme, fetchapi.ClaimScheme}

// locate finds the model of a plan in the store, and makes the engine read it there.
// Otherwise the engine finds the model by itself, if it can and the request does not
// insist on the store.
//
//	model_cache   in the store, whole   not so, a name or a path   not so, an address
//	auto          store                 the engine's own way       error
//	require       store                 error                      error
//	off           the engine's own way  the engine's own way       error
//
// The stores of claims come after the launcher's own store and count like it. An engine
// reads a folder of a claim, pvc://CLAIM/folder, by itself. If the store has the model as
// a private one that instances with that environment may not read, locate returns an
// error: the model's source would refuse their engine too.
func (s *Supervisor) locate(spec launcherapi.InstanceSpec, env map[string]string, plan *engine.Plan) (modelSource, error) {
	field := "body.args"
	if spec.Options != nil {
		field = "body.options"
	}
	if plan.FindsModel {
		if spec.ModelCache == launcherapi.ModelCacheRequire {
			return modelSource{}, launcher.Invalidf("body.model_cache", "model_cache is require, and this engine reads no model of the store; leave out model_cache")
		}
		return modelSource{}, nil
	}
	address, err := s.schemeOf(plan.Model)
	if err != nil {
		return modelSource{}, launcher.Invalidf(field, "%w", err)
	}
	claimed := address == fetchapi.ClaimScheme
	switch {
	case spec.ModelCache == launcherapi.ModelCacheOff && claimed:
		return s.folderOfClaim(plan, field, "model_cache is off")
	case spec.ModelCache == launcherapi.ModelCacheOff && address != "":
		return modelSource{}, launcher.Invalidf("body.model_cache", "model_cache is off, and engines cannot read a model from %s themselves; leave out model_cache, or give a model that they can read", address)
	case spec.ModelCache == launcherapi.ModelCacheOff:
		return modelSource{From: launcherapi.ModelFromSource, Why: "model_cache is off"}, nil
	case s.opts.Models == nil && len(s.opts.Claims) == 0:
		return s.withoutStore(spec, plan, field, address)
	}
	from, missing, err := s.findInStores(plan, env)
	if err != nil || from.ID != "" {
		return from, err
	}
	if spec.ModelCache != launcherapi.ModelCacheRequire && claimed {
		return s.folderOfClaim(plan, field, "the model is in a folder of a claim, which the engine reads in place")
	}
	if spec.ModelCache == launcherapi.ModelCacheRequire || address != "" {
		return modelSource{}, missingModel(field, "cannot serve the model %s from the store: %w; pull it first: launcher pull %s; on Kubernetes, a ClusterModelCache or a ModelCache pulls it", plan.Model, missing, pullAddress(plan))
	}
	return modelSource{From: launcherapi.ModelFromSource, Why: missing.Error()}, nil
}

// missingModel returns the error for a model that this launcher does not have. Its cause tells it apart from a mistake in
// the request, because the launcher may get the model later.
func missingModel(field, format string, args ...any) error {
	err := launcher.Invalidf(field, format, args...)
	err.FailureCause = string(engine.CauseModelNotFound)
	return err
}

// schemeOf returns the scheme of a model's address; empty: the model is a name, a path or
// an address that an engine reads.
func (s *Supervisor) schemeOf(model string) (string, error) {
	if !strings.Contains(model, "://") {
		return "", nil
	}
	if err := fetchapi.CheckAddress(model); err != nil {
		return "", err
	}
	for _, scheme := range slices.Concat(schemes, s.opts.Schemes) {
		if strings.HasPrefix(model, scheme) {
			return scheme, nil
		}
	}
	return "", nil
}

// findInStores looks for the model of a plan in the store, and then in the stores of the
// claims. missing says why it is in none of them.
func (s *Supervisor) findInStores(plan *engine.Plan, env map[string]string) (from modelSource, missing, err error) {
	var refused error
	if s.opts.Models != nil {
		v, err := s.opts.Models.Wanted(plan.Model, plan.Revision, plan.Lacks)
		switch {
		case err == nil:
			if refused = s.opts.Models.MayRead(v, s.lookupEnv(env)); refused == nil {
				from, err = readFromStore(plan, v, s.opts.Models.Files(v.Key), "")
				return from, nil, err
			}
		case !modelstore.Absent(err):
			return modelSource{}, nil, err
		default:
			missing = err
		}
	}
	if len(s.opts.Claims) > 0 {
		v, err := s.opts.Claims.Wanted(plan.Model, plan.Revision, plan.Lacks)
		if err == nil {
			from, err = readFromStore(plan, v.Version, v.Files, v.Claim)
			return from, nil, err
		}
		if !modelstore.Absent(err) {
			return modelSource{}, nil, launcher.Storagef("%w", err)
		}
		_, none := errors.AsType[*modelstore.NotFoundError](err)
		if missing == nil || !none {
			missing = err
		}
	}
	return modelSource{}, missing, refused
}

// readFromStore makes the engine of a plan read the folder of a version.
func readFromStore(plan *engine.Plan, v modelstore.Version, files, claim string) (modelSource, error) {
	if err := plan.ReadFrom(filepath.Join(files, filepath.FromSlash(v.Sub))); err != nil {
		return modelSource{}, err
	}
	store := "the store"
	if claim != "" {
		store = "claim " + claim
	}
	plan.Notes = append(plan.Notes, fmt.Sprintf("the model %s is read from %s: %s, revision %s, in %s", plan.Model, store, v.Manifest.URI, v.Manifest.Revision, plan.Folder))
	return modelSource{From: launcherapi.ModelFromCache, ID: v.Key, Claim: claim, Folder: plan.Folder}, nil
}

// folderOfClaim makes the engine read its model in a folder of a claim.
func (s *Supervisor) folderOfClaim(plan *engine.Plan, field, why string) (modelSource, error) {
	folder, err := s.opts.Claims.Folder(plan.Model)
	if err != nil {
		return modelSource{}, missingModel(field, "cannot serve the model %s: %w", plan.Model, err)
	}
	if err := plan.ReadFrom(folder); err != nil {
		return modelSource{}, err
	}
	plan.Notes = append(plan.Notes, fmt.Sprintf("the model %s is read in %s", plan.Model, folder))
	return modelSource{From: launcherapi.ModelFromSource, Why: why, Folder: folder}, nil
}

// withoutStore is locate for a launcher without a model store.
func (s *Supervisor) withoutStore(spec launcherapi.InstanceSpec, plan *engine.Plan, field, address string) (modelSource, error) {
	switch {
	case spec.ModelCache == launcherapi.ModelCacheRequire:
		return modelSource{}, launcher.Invalidf("body.model_cache", "model_cache is require, but this launcher has no model store; start it with --model-store (on Kubernetes: spec.modelCache of its LauncherConfig), or ask for auto")
	case address == fetchapi.ClaimScheme:
		return s.folderOfClaim(plan, field, "") // returns the error that there is no such claim
	case address != "":
		return modelSource{}, missingModel(field, "the model %s is an address to pull from, but this launcher has no model store; start it with --model-store (on Kubernetes: spec.modelCache of its LauncherConfig), and pull the model", plan.Model)
	default:
		return modelSource{}, nil
	}
}

// lookupEnv returns a function that looks up environment variables as an engine with env
// does: first in env, then in the launcher's own environment.
func (s *Supervisor) lookupEnv(env map[string]string) func(name string) string {
	return func(name string) string {
		if value, given := env[name]; given {
			return value
		}
		value := ""
		for _, v := range s.opts.Environ {
			if own, is, _ := strings.Cut(v, "="); own == name {
				value = is
			}
		}
		return value
	}
}

// pullAddress returns the address by which the model of a plan is pulled.
func pullAddress(plan *engine.Plan) string {
	uri := plan.Model
	if !strings.Contains(uri, "://") {
		uri = modelref.HubScheme + uri
	}
	if plan.Revision != "" && !strings.Contains(uri, "@") {
		uri += "@" + plan.Revision
	}
	return uri
}

// LeaseHolder returns the name under which the instance has its lease.
func (s *SavedInstance) LeaseHolder() string { return leaseHolder(s.Facts.ID) }

// leaseHolder returns the name under which an instance has its lease.
func leaseHolder(id string) string { return "instance " + id }

// lease takes the lease on the model of a draft. The instance's id is already taken, so no
// other call takes a lease in its name.
func (s *Supervisor) lease(d *Draft) error {
	if !d.local.leased() {
		return nil
	}
	holder := leaseHolder(d.ID)
	err := boundedCall(s, "take the lease of "+holder, func() error {
		defer s.lockLeases()()
		return s.opts.Models.Lease(d.local.ID, holder)
	}, func() { s.unlease(d.ID, nil, d) })
	_, none := errors.AsType[*modelstore.NotFoundError](err)
	_, broken := errors.AsType[*modelstore.NotWholeError](err)
	switch {
	case none || broken: // since the draft was made
		return launcher.Conflictf("the model %s was removed or damaged in the meantime: %w", d.plan.Model, err)
	case err != nil:
		return launcher.Storagef("%w", err)
	}
	return nil
}

// unlease releases the lease of an instance, or of a draft that no instance was made of, if it
// has one. A disk that stalls holds the release up, perhaps until another instance of that id
// needs the lease: it keeps it.
func (s *Supervisor) unlease(id string, i *instance, d *Draft) {
	if s.opts.Models == nil {
		return
	}
	holder := leaseHolder(id)
	if err := boundedCall(s, "end the lease of "+holder, func() error {
		defer s.lockLeases()()
		return s.releaseUnneeded(id, i, d)
	}, nil); err != nil {
		s.log.Error("cannot release a model now; if the disk does not catch up with the release, the model can be removed once the launcher is restarted", "instance", id, "error", err)
	}
}

// lockLeases waits for the lock of the leases. Calls that hold it and wait for the disk hold up
// no more than others that change leases.
func (s *Supervisor) lockLeases() (unlock func()) {
	s.leases <- struct{}{}
	return func() { <-s.leases }
}

// releaseUnneeded releases the lease in the name of an id, unless needsLease. The caller has the
// lock of the leases.
func (s *Supervisor) releaseUnneeded(id string, i *instance, d *Draft) error {
	if s.needsLease(id, i, d) {
		return nil
	}
	return s.opts.Models.Release(leaseHolder(id))
}

// needsLease reports whether an instance of that id other than i, or a swap that is to create
// one from a draft other than d, needs the lease in its name.
func (s *Supervisor) needsLease(id string, i *instance, d *Draft) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.usesLocked(id); now != nil && now != i && now.facts.Local.leased() {
		return true
	}
	for _, c := range s.claims {
		if c.draft != nil && c.draft.ID == id && c.draft != d && (c.in == nil || c.in != i) && c.draft.local.leased() {
			return true
		}
	}
	return false
}

// takeLeasesAgain takes the leases of recovered instances: while this launcher did not run,
// another one of its name may have dropped them.
func (s *Supervisor) takeLeasesAgain() {
	if s.opts.Models == nil {
		return
	}
	s.mu.Lock()
	using := map[string]*instance{}
	for id, i := range s.instances {
		if i.facts.Local.leased() {
			using[id] = i
		}
	}
	s.mu.Unlock()
	take := func() (err error) {
		defer s.lockLeases()()
		for id, i := range using {
			if s.uses(id) == i { // else it has ended while the disk stalled
				err = errors.Join(err, s.opts.Models.Lease(i.facts.Local.ID, leaseHolder(id)), s.releaseUnneeded(id, nil, nil))
			}
		}
		return err
	}
	if err := boundedCall(s, "take the leases of recovered instances", take, nil); err != nil {
		s.log.Error("some models may be removed although instances use them", "error", err)
	}
}

// uses returns the instance of that id which holds something; nil: there is none.
func (s *Supervisor) uses(id string) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usesLocked(id)
}

// usesLocked is uses for a caller that has the lock.
func (s *Supervisor) usesLocked(id string) *instance {
	if i := s.instances[id]; i != nil && !i.released {
		return i
	}
	return nil
}

// releaseStaleLeases releases the leases of instances of an earlier launcher that are gone
// or released.
func (s *Supervisor) releaseStaleLeases() {
	if s.opts.Models == nil {
		return
	}
	release := func() error {
		defer s.lockLeases()()
		return s.opts.Models.ReleaseOthers(func(holder string) bool {
			id, ours := strings.CutPrefix(holder, leaseHolder(""))
			return ours && (s.uses(id) != nil || s.needsLease(id, nil, nil))
		})
	}
	if err := boundedCall(s, "end the leases of earlier instances", release, nil); err != nil {
		s.log.Error("some models may count as in use although they are not", "error", err)
	}
}
