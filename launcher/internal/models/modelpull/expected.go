package modelpull

import (
	"fmt"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Expected is what a caller declares about a model. Empty fields are unknown.
type Expected struct {
	Bytes  int64  // all files together have at most so many
	Digest string // see fetchapi.Manifest
}

// check refuses a model whose manifest does not meet the declaration.
func (e Expected) check(m *fetchapi.Manifest) error {
	bytes, digest := m.Bytes(), m.Digest()
	switch {
	case e.Bytes > 0 && bytes > e.Bytes:
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has %d bytes, and the declared size allows %d: raise the size, or correct the address", m.URI, bytes, e.Bytes)}
	case e.Digest != "" && digest != "" && digest != e.Digest:
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has the digest %s, but %s is expected: correct the expected digest, or the address", m.URI, digest, e.Digest)}
	}
	return nil
}
