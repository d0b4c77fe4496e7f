package keeper

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelpull"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Bounds of proofs.
const (
	proofFresh = time.Hour           // how long a proof counts without another question
	proofLasts = 30 * 24 * time.Hour // how long a proof counts while the source is unavailable
	proveTime  = 30 * time.Second    // how long a question may take
)

// MayRead returns nil when an instance may read a version. Every instance may read a
// version that is not private. For a private version, the source must let the caller
// read it. The credentials are those in the instance's environment env, or, if it has
// none, the launcher's own. The error has the code forbidden when the source refuses.
//
// A proof counts for an hour. While the source is unavailable, it counts for 30 days:
// the store exists so that models are served without their source.
func (k *Keeper) MayRead(v modelstore.Version, env func(name string) string) error {
	if !v.Private() {
		return nil
	}
	credentials := fetchapi.FromEnvironment(v.Manifest.URI, env)
	proof := k.proofOf(v.Key, credentials)
	if before, proved := proof.when(); proved && time.Since(before) < proofFresh {
		return nil
	}
	_, err, _ := k.proving.Do(cmp.Or(proof.name, proof.key), func() (any, error) { // one question for all that ask at the same time
		return nil, k.prove(v, credentials, proof)
	})
	return err
}

// prove asks the source of a version whether it lets the caller read.
func (k *Keeper) prove(v modelstore.Version, credentials fetchapi.Credentials, proof proof) error {
	ctx, stop := context.WithTimeout(k.ctx, proveTime)
	defer stop()
	before, proved := proof.when()
	if proved && time.Since(before) < proofFresh { // another call has asked meanwhile
		return nil
	}
	uri := v.Manifest.URI
	if modelstore.FromHub(&v.Manifest) {
		uri += "@" + v.Manifest.Revision
	}
	err := modelpull.Prove(ctx, modelpull.Options{Program: k.opts.Program, URI: uri, Selection: v.Manifest.Selection, Credentials: credentials, Stderr: k.opts.Stderr, Start: k.opts.Start})
	cause := causeOf(err)
	if errors.Is(err, context.DeadlineExceeded) {
		err, cause = fmt.Errorf("the source has not answered within %v", proveTime), fetchapi.ReasonUnavailable
	}
	switch {
	case err == nil:
		proof.record()
		return nil
	case cause == fetchapi.ReasonAccessDenied, cause == fetchapi.ReasonNotFound: // some sources answer "not found" for a model that the caller may not read
		proof.drop()
		return &launcher.Error{
			Code: launcherapi.CodeForbidden, FailureCause: fetchapi.ReasonAccessDenied, Cause: err,
			Detail: fmt.Sprintf("the model %s is private, and its source does not let this instance read it: %v; set %s in the instance's env_vars or in the launcher's environment", v.Manifest.URI, err, fetchapi.Takes(v.Manifest.URI)),
		}
	case proved && time.Since(before) < proofLasts:
		k.opts.Logger.Warn("cannot ask the source of a private model; an earlier proof of the right to read it still counts", "uri", v.Manifest.URI, "proved", before, "error", err)
		return nil
	default:
		return &launcher.Error{
			Code: codes[cause], FailureCause: cause, Cause: err,
			Detail: fmt.Sprintf("the model %s is private, and its source cannot be asked whether this instance may read it: %v; try again later", v.Manifest.URI, err),
		}
	}
}

// clockSkew is how far the clocks of machines with one store may differ.
const clockSkew = 5 * time.Minute

// proof stands for the source's permission to read a version with some credentials.
type proof struct {
	keeper *Keeper
	name   string // of its file in the store; empty for the launcher's own credentials: other readers of the store may not have these
	key    string // the version's key
}

func (k *Keeper) proofOf(key string, by fetchapi.Credentials) proof {
	if by == nil {
		return proof{keeper: k, key: key}
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", key)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(h, "%q %q\n", name, by[name])
	}
	return proof{keeper: k, key: key, name: hex.EncodeToString(h.Sum(nil))}
}

// when returns when the source last gave this permission, if it did.
func (p proof) when() (when time.Time, proved bool) {
	if p.name == "" {
		p.keeper.mu.Lock()
		defer p.keeper.mu.Unlock()
		when, proved = p.keeper.proved[p.key]
		return when, proved
	}
	when, err := p.keeper.ProvedAt(p.name)
	if err != nil || time.Until(when) > clockSkew { // the clock was set back since: nobody knows how old the proof is
		return time.Time{}, false
	}
	return when, true
}

// record records that the source gave this permission now, and removes expired proofs.
func (p proof) record() {
	if p.name == "" {
		p.keeper.mu.Lock()
		defer p.keeper.mu.Unlock()
		p.keeper.proved[p.key] = time.Now()
		return
	}
	if err := p.keeper.RecordProof(p.name, proofLasts); err != nil { // the source is asked again the next time
		p.keeper.opts.Logger.Warn("cannot record that a source lets a model be read", "error", err)
	}
}

// drop removes the proof.
func (p proof) drop() {
	if p.name == "" {
		p.keeper.mu.Lock()
		defer p.keeper.mu.Unlock()
		delete(p.keeper.proved, p.key)
		return
	}
	if err := p.keeper.DropProof(p.name); err != nil {
		p.keeper.opts.Logger.Error("cannot remove an outdated proof of the right to read a model", "error", err)
	}
}
