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

// A model that the store has is read from there: the engine is told the folder, and
// clients call the model as the request does. From before its process is made until
// it holds nothing any more the instance has a lease on that version, which nobody
// can remove meanwhile.

// local is where an instance's model is read.
type local struct {
	From   string `json:"from,omitempty"`  // launcherapi.ModelFromCache, …Source; empty: the launcher has no store
	Why    string `json:"why,omitempty"`   // the model is not read from the store
	ID     string `json:"id,omitempty"`    // of the version in the store
	Claim  string `json:"claim,omitempty"` // whose store that is; empty: the launcher's own
	Folder string `json:"folder,omitempty"`
}

// schemes begin the addresses that models are pulled from and that no engine reads.
// Those of s3 and gs are not among them: vLLM streams them where it has
// runai-model-streamer.
var schemes = []string{modelref.HubScheme, "https://", "http://", "file://", "azblob://", "oci://", fetchapi.ClaimScheme}

// locate finds the model of a plan in the store, and has the engine read it there.
// What an engine could find by itself is left to the engine, unless the request
// insists on the store.
//
//	model_cache   in the store, whole   not so, a name or a path   not so, an address
//	auto          store                 the engine's own way       error
//	require       store                 error                      error
//	off           the engine's own way  the engine's own way       error
//
// The stores of claims are looked at after the launcher's own, and count as that. A
// folder of a claim, pvc://CLAIM/folder, an engine reads by itself. Of a model in the store
// that is private, and that instances with such an environment may not read, it is an
// error: their engine would not be let read it from its source.
func (s *Supervisor) locate(spec launcherapi.InstanceSpec, env map[string]string, plan *engine.Plan) (local, error) {
	field := "body.args"
	if spec.Options != nil {
		field = "body.options"
	}
	address, err := s.schemeOf(plan.Model)
	if err != nil {
		return local{}, launcher.Invalidf(field, "%w", err)
	}
	claimed := address == fetchapi.ClaimScheme
	switch {
	case spec.ModelCache == launcherapi.ModelCacheOff && claimed:
		return s.folderOfClaim(plan, field, "model_cache is off")
	case spec.ModelCache == launcherapi.ModelCacheOff && address != "":
		return local{}, launcher.Invalidf("body.model_cache", "model_cache is off, and engines do not read models from %s: leave model_cache out, or name the model otherwise", address)
	case spec.ModelCache == launcherapi.ModelCacheOff:
		return local{From: launcherapi.ModelFromSource, Why: "model_cache is off"}, nil
	case s.opts.Models == nil && len(s.opts.Claims) == 0:
		return s.withoutStore(spec, plan, field, address)
	}
	from, missing, err := s.look(plan, env)
	if err != nil || from.ID != "" {
		return from, err
	}
	if spec.ModelCache != launcherapi.ModelCacheRequire && claimed {
		return s.folderOfClaim(plan, field, "the folder of a claim is read where it is")
	}
	if spec.ModelCache == launcherapi.ModelCacheRequire || address != "" {
		return local{}, launcher.Invalidf(field, "cannot serve the model %s from the store: %s; pull it first: launcher pull %s; on Kubernetes a ClusterModelCache or a ModelCache keeps it", plan.Model, missing, pullable(plan))
	}
	return local{From: launcherapi.ModelFromSource, Why: missing}, nil
}

// schemeOf is the scheme of an address of a model; empty: it is a name or a path.
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

// look looks for the model of a plan in the store, and then in those of the claims;
// missing says why it is in none.
func (s *Supervisor) look(plan *engine.Plan, env map[string]string) (from local, missing string, err error) {
	var refused error
	if s.opts.Models != nil {
		v, err := s.opts.Models.Wanted(plan.Model, plan.Revision)
		switch {
		case err == nil:
			if refused = s.opts.Models.MayRead(v, s.seenBy(env)); refused == nil {
				return tell(plan, v, s.opts.Models.Files(v.Key), ""), "", nil
			}
		case !modelstore.Absent(err):
			return local{}, "", err
		default:
			missing = err.Error()
		}
	}
	if len(s.opts.Claims) > 0 {
		v, err := s.opts.Claims.Wanted(plan.Model, plan.Revision)
		if err == nil {
			return tell(plan, v.Version, v.Files, v.Claim), "", nil
		}
		if !modelstore.Absent(err) {
			return local{}, "", launcher.Storagef("%w", err)
		}
		_, none := errors.AsType[*modelstore.NotFoundError](err)
		if missing == "" || !none {
			missing = err.Error()
		}
	}
	return local{}, missing, refused
}

// tell has the engine of a plan told the folder of a version.
func tell(plan *engine.Plan, v modelstore.Version, files, claim string) local {
	plan.Folder = filepath.Join(files, filepath.FromSlash(v.Sub))
	store := "the store"
	if claim != "" {
		store = "claim " + claim
	}
	plan.Notes = append(plan.Notes, fmt.Sprintf("the model %s is read from %s: %s, revision %s, in %s", plan.Model, store, v.Manifest.URI, v.Manifest.Revision, plan.Folder))
	return local{From: launcherapi.ModelFromCache, ID: v.Key, Claim: claim, Folder: plan.Folder}
}

// folderOfClaim has the engine read the folder of a claim that its model is.
func (s *Supervisor) folderOfClaim(plan *engine.Plan, field, why string) (local, error) {
	folder, err := s.opts.Claims.Folder(plan.Model)
	if err != nil {
		return local{}, launcher.Invalidf(field, "cannot serve the model %s: %w", plan.Model, err)
	}
	plan.Folder = folder
	plan.Notes = append(plan.Notes, fmt.Sprintf("the model %s is read in %s", plan.Model, folder))
	return local{From: launcherapi.ModelFromSource, Why: why, Folder: folder}, nil
}

// withoutStore is where a launcher that has none has the model of a plan read.
func (s *Supervisor) withoutStore(spec launcherapi.InstanceSpec, plan *engine.Plan, field, address string) (local, error) {
	switch {
	case spec.ModelCache == launcherapi.ModelCacheRequire:
		return local{}, launcher.Invalidf("body.model_cache", "model_cache is require, and this launcher has no model store: start it with --model-store, on Kubernetes by spec.modelCache of its LauncherConfig, or ask for auto")
	case address == fetchapi.ClaimScheme:
		return s.folderOfClaim(plan, field, "") // which says that there is none
	case address != "":
		return local{}, launcher.Invalidf(field, "the model %s is an address to pull from, and this launcher has no model store: start it with --model-store, on Kubernetes by spec.modelCache of its LauncherConfig, and pull the model", plan.Model)
	default:
		return local{}, nil
	}
}

// seenBy looks variables up as an engine does that is given some beside those of the
// launcher.
func (s *Supervisor) seenBy(env map[string]string) func(name string) string {
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

// pullable is the address by which the model of a plan is pulled.
func pullable(plan *engine.Plan) string {
	uri := plan.Model
	if !strings.Contains(uri, "://") {
		uri = modelref.HubScheme + uri
	}
	if plan.Revision != "" && !strings.Contains(uri, "@") {
		uri += "@" + plan.Revision
	}
	return uri
}

// holder is the name by which an instance has its lease.
func holder(id string) string { return "instance " + id }

// lease keeps the model of a draft from being removed. The instance's id is taken:
// nobody else asks for a lease in its name.
func (s *Supervisor) lease(d *Draft) error {
	if d.local.ID == "" || d.local.Claim != "" {
		return nil
	}
	err := s.opts.Models.Lease(d.local.ID, holder(d.ID))
	_, none := errors.AsType[*modelstore.NotFoundError](err)
	_, broken := errors.AsType[*modelstore.NotWholeError](err)
	switch {
	case none || broken: // since the draft was made
		return launcher.Conflictf("the model %s was removed or damaged meanwhile: %w", d.plan.Model, err)
	case err != nil:
		return launcher.Storagef("%w", err)
	}
	return nil
}

// unlease gives back the lease that an instance may have. The id is still taken.
func (s *Supervisor) unlease(id string) {
	if s.opts.Models == nil {
		return
	}
	if err := s.opts.Models.Release(holder(id)); err != nil {
		s.log.Error("a model that is not in use any more cannot be removed before the launcher is started again", "instance", id, "error", err)
	}
}

// dropLeases gives back the leases of instances that an earlier life of the launcher
// had, and that are no more or hold nothing.
func (s *Supervisor) dropLeases() {
	if s.opts.Models == nil {
		return
	}
	s.mu.Lock()
	hold := map[string]bool{}
	for id, i := range s.instances {
		hold[holder(id)] = !i.released
	}
	s.mu.Unlock()
	if err := s.opts.Models.ReleaseOthers(func(holder string) bool { return hold[holder] }); err != nil {
		s.log.Error("models may count as in use that are not", "error", err)
	}
}
