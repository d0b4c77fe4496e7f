package modelpull

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// amend updates the want of a version that the holder has whole, without asking the
// source.
func (o *Options) amend() (v modelstore.Version, there bool, err error) {
	return o.Store.Amend(modelref.Name{Model: o.URI}, modelstore.Want{Selection: o.Clean(), Ref: o.Ref, Holder: o.Holder, Retention: o.Retention, Private: o.Private, Warm: o.Warm}, o.check)
}

// held is the whole version that a pull's address names, if the store has it.
type held struct {
	version modelstore.Version
	ref     string // by which the address names it; empty: by none
	there   bool
}

// inStore looks for the version in the store. For a private model, the source has to let each
// caller read it.
func (o *Options) inStore() (h held) {
	if o.Private {
		return held{}
	}
	h.version, h.ref, h.there = o.Store.Whole(o.URI, o.Clean())
	return h
}

// fixed reports whether the address names this version whatever happens at the source: by its
// commit on the hub, or by its digest.
func (h *held) fixed(uri string) bool {
	m := &h.version.Manifest
	return h.there && (strings.HasPrefix(uri, modelref.HubScheme) && h.ref == m.Revision || strings.HasPrefix(uri, "oci://") && strings.HasSuffix(uri, "@sha256:"+m.Revision))
}

// take wants a version that the store has. The error is [modelstore.ErrPrivate] if it has
// become private meanwhile.
func (o *Options) take(h held) (r Result, err error) {
	m := h.version.Manifest
	if err := o.check(&m); err != nil {
		return r, err
	}
	if m.Ref = h.ref; h.ref == m.Revision {
		m.Ref = ""
	} else if h.ref == "" && strings.HasPrefix(m.URI, modelref.HubScheme) {
		m.Ref = modelref.MainBranch
	}
	p := &pull{Options: *o}
	there, err := o.Store.WantThere(p.wanted(&m), false)
	if err == nil && !there {
		err = errRemovedMeanwhile
	}
	return Result{There: true, Version: h.version}, err
}

// standIn takes a version whose source does not answer.
func (o *Options) standIn(h held, because error) (Result, error) {
	r, err := o.take(h)
	if err != nil {
		return Result{}, errors.Join(because, err)
	}
	o.Progress(fetchapi.Line{Type: fetchapi.TypeNote, Text: fmt.Sprintf("%v; the store has %s whole, revision %s of %s, which may have moved since", because, o.URI, cmp.Or(r.Version.Manifest.Revision, "unknown"), r.Version.Published.Format(time.RFC3339))})
	return r, nil
}

// errRemovedMeanwhile ends a pull that had nothing to fetch: the version was there, or
// another pull fetched it. It was removed before the want was recorded, so Run tries
// again.
var errRemovedMeanwhile = errors.New("the model was removed during the pull; pull it again")

// wantProved records the want of the version, after the source has let the child read
// it.
func (p *pull) wantProved() error {
	if p.asked == nil || p.fetch != nil {
		return errors.New("modelfetch reported that it may read before it was asked")
	}
	return p.wantThere(true)
}

// wantThere records the want of a version that the store has or that another pull fetches.
// The error is [modelstore.ErrPrivate] if the caller has to prove its right first.
func (p *pull) wantThere(proved bool) error {
	v, there := p.Store.Version(p.asked.Key())
	if p.joins == nil && there && v.Damage == nil {
		if err := p.check(&v.Manifest); err != nil {
			return err
		}
	}
	there, err := p.Store.WantThere(p.wanted(p.asked), proved)
	switch {
	case err != nil:
		return err
	case !there:
		return errRemovedMeanwhile
	case p.joins != nil:
		return p.joins
	}
	p.result.There, p.result.Version = true, v
	return nil
}
