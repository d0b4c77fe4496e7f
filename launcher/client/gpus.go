package client

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// GPUs shows every GPU with the instances on it.
func (c *Client) GPUs(ctx context.Context) (launcherapi.GPUList, error) {
	return list(ctx, c, call{method: http.MethodGet, path: "/v2/gpus"}, "gpus", func(l *launcherapi.GPUList) *[]launcherapi.GPU { return &l.GPUs })
}

// Preloaders lists the processes that have an engine loaded, from which instances
// are forked.
func (c *Client) Preloaders(ctx context.Context) (launcherapi.PreloaderList, error) {
	return do[launcherapi.PreloaderList](ctx, c, call{method: http.MethodGet, path: "/v2/vllm/preloaders"})
}
