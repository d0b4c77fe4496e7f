package binding

import (
	"context"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Views knows what the launchers say, by the UID of their Pods, as
// [nodeview.Set] does.
type Views interface {
	Watch(key string, target nodeview.Target)
	Forget(key string)
	View(key string) nodeview.View
	One(key, id string) nodeview.View
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
	// Client is nil for a launcher that is not watched or has never answered.
	Client(key string) LauncherClient
}

// LauncherClient asks one launcher, as the launcher's own client does.
type LauncherClient interface {
	SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error)
	CallOff(ctx context.Context, key string) error
	Sleep(ctx context.Context, id string, req launcherapi.SleepRequest) (launcherapi.Instance, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
}

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
