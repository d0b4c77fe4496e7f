package modelpull

import (
	"errors"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/modelref"
)

// amend notes what is said now of the version that the holder has whole already, where the
// source need not be asked.
func (o *Options) amend() (v modelstore.Version, there bool, err error) {
	return o.Store.Amend(modelref.Name{Model: o.URI}, modelstore.Want{Selection: o.Clean(), Ref: o.Ref, Holder: o.Holder, Retention: o.Retention, Private: o.Private, Warm: o.Warm}, o.check)
}

// errGone ends a pull that had nothing to fetch, since the version was there or somebody
// else fetched it, and that is not so any more once the source has answered.
var errGone = errors.New("the model was removed meanwhile")

// proved notes that the version is wanted, now that the source has shown that it lets
// this one read it.
func (p *pull) proved() error {
	if p.asked == nil || p.fetch != nil {
		return errors.New("modelfetch says that it may read and was not asked")
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
		return errGone
	case p.joins != nil:
		return p.joins
	}
	p.result.There, p.result.Version = true, v
	return nil
}
