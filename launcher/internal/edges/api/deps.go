package api

import (
	"context"
	"io"
	"net/http"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instances keeps the instances. The supervisor implements it.
type Instances interface {
	Create(launcher.CreateRequest) (launcherapi.Instance, error)
	Get(id string) (launcherapi.Instance, error)
	List() (all []launcherapi.Instance, revision uint64)
	Sleep(id string, req launcher.VerbRequest) (launcherapi.Instance, error)
	Wake(id string, req launcher.VerbRequest) (launcherapi.Instance, error)
	AwaitState(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
	DeleteAll(ctx context.Context) ([]launcherapi.Instance, error)
	LogName(id string) (name string, over <-chan struct{}, err error)
	GPUs() launcherapi.GPUList
}

// Events is the stream of the events of instances. Package eventlog implements it.
type Events interface {
	Check(since uint64) error
	Next(ctx context.Context, since uint64) ([]launcherapi.WatchEvent, error)
	Revision() uint64
}

// Logs reads the engines' log files. Package outlog implements it.
type Logs interface {
	// Read opens what a log still has of a part. Its error is a *[launcher.LogRangeError] if
	// that is nothing, and an fs.ErrNotExist if there is no log.
	Read(name string, r launcher.LogRange) (*launcher.LogPart, error)
	Follow(ctx context.Context, name string, from int64, over <-chan struct{}, write func([]byte) error) error
}

// Swaps begins swaps and remembers them. The daemon makes it of the swap coordinator.
type Swaps interface {
	Begin(req launcherapi.SwapRequest, key string) (launcher.SwapRun, error)
	CallOff(key string) (launcher.SwapRun, error)
	List() []launcher.SwapRun // oldest first
	Get(id string) (launcher.SwapRun, error)
	Cancel(id string) (launcher.SwapRun, error)
	Go(id string) (launcher.SwapRun, error)
	Commit(id string) (launcher.SwapRun, error)
	Undo(id string) (launcher.SwapRun, error)
}

// PortLeases keeps ports for instances that are yet to be created. Package portlease implements
// it.
type PortLeases interface {
	Lease(id string, count int) (launcherapi.PortLease, error)
	GiveBack(id string) (launcherapi.PortLease, error)
}

// Models keeps the models of the model store. Package keeper implements it.
type Models interface {
	List() (launcherapi.ModelList, error)
	Get(id string) (launcherapi.Model, error)
	Pull(ctx context.Context, r launcherapi.ModelRequest) (launcherapi.Model, error)
	Remove(ctx context.Context, id, holder string) (launcherapi.Model, error)
	Warm(ctx context.Context, id string) (launcherapi.WarmedModel, error)
	// Changed gives a channel that is closed when anything has changed since the call.
	Changed() <-chan struct{}
}

// CompileCaches keeps what engines compile when they start. Package compiled implements it.
type CompileCaches interface {
	List() (launcherapi.CompileCacheList, error)
	Remove(key string) (launcherapi.CompileCache, error)
	// Export returns a function that writes a cache to a stream. The stream is incomplete
	// if that function returns an error.
	Export(key string) (write func(io.Writer) error, err error)
	// Import takes in what a launcher of another node has exported.
	Import(key string, r io.Reader) (launcherapi.CompileCache, error)
}

// FrontDoor serves all models at one address. Package frontdoor implements it.
type FrontDoor interface {
	Show() launcherapi.FrontDoor
	Choose(profile string) error
}

// Access decides who may call.
type Access interface {
	// Allow returns nil, or an error of code unauthorized or forbidden.
	Allow(r *http.Request) error
}
