package modelpull

import (
	"hotseat.dev/hotseat/launcher/internal/modelstore"
	"hotseat.dev/hotseat/spec/modelref"
)

// amend notes what is said now of the version that the holder has whole already, where the
// source need not be asked.
func (o *Options) amend() (v modelstore.Version, there bool, err error) {
	return o.Store.Amend(modelref.Name{Model: o.URI}, modelstore.Want{Selection: o.Clean(), Ref: o.Ref, Holder: o.Holder, Retention: o.Retention, Private: o.Private, Warm: o.Warm}, o.check)
}
