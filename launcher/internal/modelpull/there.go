package modelpull

import (
	"hotseat.dev/hotseat/launcher/internal/modelstore"
	"hotseat.dev/hotseat/spec/modelref"
)

// there gives the version that the holder has whole already, and the want that says of it
// what is said now, where the source need not be asked: who may read the version is said as
// before, and it is as expected.
func (o *Options) there() (v modelstore.Version, w modelstore.Want, is bool) {
	v, w, held := o.Store.Held(o.Holder, modelref.Name{Model: o.URI}, o.Ref, o.Clean())
	is = held && w.Private == o.Private && o.check(&v.Manifest) == nil
	w.Retention, w.Warm = o.Retention, o.Warm
	return v, w, is
}
