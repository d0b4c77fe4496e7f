package binding

import (
	"context"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// Requesters asks requester programs, by the address of their SPI.
type Requesters interface {
	Accelerators(ctx context.Context, address string) (uuids []string, err error)
	Proxy(ctx context.Context, address string) (requesterapi.Proxy, error)
	Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (requesterapi.Proxy, error)
	Unbind(ctx context.Context, address, binding string, drain time.Duration) (requesterapi.Unbound, error)
	BecomeReady(ctx context.Context, address, binding string) error
	BecomeUnready(ctx context.Context, address, binding string) error
	Hold(ctx context.Context, address string, hold requesterapi.Hold) (requesterapi.Proxy, error)
}
