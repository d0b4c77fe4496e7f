package modelpull

import (
	"fmt"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// Expected is what whoever asks has been told about a model. What is empty is not known.
type Expected struct {
	Bytes  int64  // of all files
	Digest string // of fetchapi.Manifest
}

// By how many parts of a hundred, and by how many bytes at least, a model may have another
// size than was declared: people round, and count in one unit or another.
const (
	smallShare      = 10
	smallDifference = 1 << 20
)

// check refuses a model that is not what was declared, as far as its manifest tells.
func (e Expected) check(m *fetchapi.Manifest) error {
	bytes, digest := m.Bytes(), m.Digest()
	differs := max(bytes-e.Bytes, e.Bytes-bytes)
	switch {
	case e.Bytes > 0 && differs > max(smallDifference, e.Bytes/100*smallShare):
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has %d bytes, and %d were declared: mend the size that is declared, or the address", m.URI, bytes, e.Bytes)}
	case e.Digest != "" && digest != "" && digest != e.Digest:
		return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf("%s has the digest %s, and %s is expected", m.URI, digest, e.Digest)}
	}
	return nil
}
