package client

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// GPUs lists the GPUs, with the instances on each.
func (c *Client) GPUs(ctx context.Context) (launcherapi.GPUList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: "/v2/gpus"}, "gpus", func(l *launcherapi.GPUList) *[]launcherapi.GPU { return &l.GPUs })
}

// Preloaders lists the preloaders: the processes from which the launcher forks instances.
func (c *Client) Preloaders(ctx context.Context) (launcherapi.PreloaderList, error) {
	return do[launcherapi.PreloaderList](ctx, c, call{method: http.MethodGet, path: "/v2/vllm/preloaders"})
}
