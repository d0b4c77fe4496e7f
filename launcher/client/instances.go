package client

import (
	"context"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const instancesPath = "/v2/vllm/instances"

// Create makes an instance and starts its engine. It returns as soon as the
// process runs, with state starting. With an empty id the launcher makes one.
func (c *Client) Create(ctx context.Context, id string, spec launcherapi.InstanceSpec) (launcherapi.Instance, error) {
	what := call{method: http.MethodPost, path: instancesPath, body: spec}
	if id != "" {
		what.method, what.path = http.MethodPut, instancePath(id, "")
	}
	return do[launcherapi.Instance](ctx, c, what)
}

// Get shows one instance.
func (c *Client) Get(ctx context.Context, id string) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodGet, path: instancePath(id, "")})
}

// List shows every instance, and the revision of the list, from which to
// [Client.Watch].
func (c *Client) List(ctx context.Context) (launcherapi.InstanceList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: instancesPath}, "instances", func(l *launcherapi.InstanceList) *[]launcherapi.Instance { return &l.Instances })
}

// ListIDs names every instance.
func (c *Client) ListIDs(ctx context.Context) (launcherapi.InstanceIDList, error) {
	return do[launcherapi.InstanceIDList](ctx, c, call{method: http.MethodGet, path: instancesPath, query: url.Values{"detail": {"false"}}})
}

// Delete stops an instance's whole process tree, waits until it is gone, and has
// the launcher forget it. The launcher goes on with it when ctx ends first.
func (c *Client) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodDelete, path: instancePath(id, "")})
}

// DeleteAll is Delete for every instance, all at once.
func (c *Client) DeleteAll(ctx context.Context) (launcherapi.StoppedList, error) {
	return list(ctx, c, call{method: http.MethodDelete, path: instancesPath}, "stopped_instances", func(l *launcherapi.StoppedList) *[]launcherapi.Instance { return &l.StoppedInstances })
}

// Sleep puts an instance to sleep and returns when it sleeps, or at once where
// req.Wait says so.
func (c *Client) Sleep(ctx context.Context, id string, req launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodPost, path: instancePath(id, "/sleep"), body: req})
}

// Wake wakes an instance and returns when it is awake, or at once where
// req.Wait says so.
func (c *Client) Wake(ctx context.Context, id string, req launcherapi.WakeRequest) (launcherapi.Instance, error) {
	return do[launcherapi.Instance](ctx, c, call{method: http.MethodPost, path: instancePath(id, "/wake"), body: req})
}
