package client

import (
	"context"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const instancesPath = "/v2/vllm/instances"

// Create creates an instance and starts its engine. It returns as soon as the process runs,
// with the state starting. If id is empty, the launcher generates one.
func (c *Client) Create(ctx context.Context, id string, spec launcherapi.InstanceSpec) (launcherapi.Instance, error) {
	what := call{method: http.MethodPost, path: instancesPath, body: spec}
	if id != "" {
		what.method, what.path = http.MethodPut, instancePath(id, "")
	}
	return do[launcherapi.Instance](ctx, c, what)
}

// Get returns one instance.
func (c *Client) Get(ctx context.Context, id string) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodGet, path: instancePath(id, "")})
}

// List lists all instances. Its revision can be passed to [Client.Watch].
func (c *Client) List(ctx context.Context) (launcherapi.InstanceList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: instancesPath}, "instances", func(l *launcherapi.InstanceList) *[]launcherapi.Instance { return &l.Instances })
}

// ListIDs lists the ids of all instances.
func (c *Client) ListIDs(ctx context.Context) (launcherapi.InstanceIDList, error) {
	return do[launcherapi.InstanceIDList](ctx, c, call{method: http.MethodGet, path: instancesPath, query: url.Values{"detail": {"false"}}})
}

// Delete stops the process tree of an instance, waits until it is gone, and has the launcher
// forget the instance. If ctx ends first, the launcher continues the deletion.
func (c *Client) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodDelete, path: instancePath(id, "")})
}

// DeleteAll deletes all instances in parallel, as Delete does.
func (c *Client) DeleteAll(ctx context.Context) (launcherapi.StoppedList, error) {
	return list(ctx, c, call{method: http.MethodDelete, path: instancesPath}, "stopped_instances", func(l *launcherapi.StoppedList) *[]launcherapi.Instance { return &l.StoppedInstances })
}

// Sleep puts an instance to sleep. It returns when the instance sleeps, or at once if req.Wait
// is false.
func (c *Client) Sleep(ctx context.Context, id string, req launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodPost, path: instancePath(id, "/sleep"), body: req})
}

// Wake wakes an instance. It returns when the instance is awake, or at once if req.Wait is
// false.
func (c *Client) Wake(ctx context.Context, id string, req launcherapi.WakeRequest) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodPost, path: instancePath(id, "/wake"), body: req})
}
