package modelpull

import (
	"errors"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/modelref"
)

// amend updates the want of a version that the holder has whole, without asking the
// source.
func (o *Options) amend() (v modelstore.Version, there bool, err error) {
	return o.Store.Amend(modelref.Name{Model: o.URI}, modelstore.Want{Selection: o.Clean(), Ref: o.Ref, Holder: o.Holder, Retention: o.Retention, Private: o.Private, Warm: o.Warm}, o.check)
}

// errRemovedMeanwhile ends a pull that had nothing to fetch: the version was there, or
// another pull fetched it. It was removed before the source answered, so Run tries
// again.
var errRemovedMeanwhile = errors.New("the model was removed during the pull; pull it again")

// wantProved records the want of the version, after the source has let the child read
// it.
func (p *pull) wantProved() error {
	if p.asked == nil || p.fetch != nil {
		return errors.New("modelfetch reported that it may read before it was asked")
	}
	v, there := p.Store.Version(p.asked.Key())
	if p.joins == nil && there && v.Damage == nil {
		if err := p.check(&v.Manifest); err != nil {
			return err
		}
	}
	there, err := p.Store.WantThere(p.wanted(p.asked))
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
