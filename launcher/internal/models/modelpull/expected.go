package modelpull

import (
	"fmt"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Expected is what a caller declares about a model. Empty fields are unknown.
type Expected struct {
	Bytes  int64  // the size of all files
	Digest string // see fetchapi.Manifest
}

// A model's size may differ from the declared one by the larger of these two: people
// round sizes, and use different units.
const (
	tolerancePercent = 10
	toleranceBytes   = 1 << 20
)

// check refuses a model whose manifest differs from the declaration.
func (e Expected) check(m *fetchapi.Manifest) error {
	bytes, digest := m.Bytes(), m.Digest()
	differs := max(bytes-e.Bytes, e.Bytes-bytes)
	switch {
	case e.Bytes > 0 && differs > max(toleranceBytes, e.Bytes/100*tolerancePercent):
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has %d bytes, but %d are expected: correct the expected size, or the address", m.URI, bytes, e.Bytes)}
	case e.Digest != "" && digest != "" && digest != e.Digest:
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has the digest %s, but %s is expected: correct the expected digest, or the address", m.URI, digest, e.Digest)}
	}
	return nil
}
