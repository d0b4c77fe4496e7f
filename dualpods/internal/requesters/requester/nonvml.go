//go:build !cgo

package requester

import (
	"fmt"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// fromNVML cannot be asked by a static program: NVML is loaded by the C library.
type fromNVML struct{ library string }

func (*fromNVML) uuids() ([]string, error) { return nil, errStatic }

func (*fromNVML) memory() (requesterapi.MemoryUsage, error) { return nil, errStatic }

var errStatic = fmt.Errorf("%w: this requester is built without NVML: use one that is built with CGO_ENABLED=1", errNobodyKnows)
