package client

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// GPUs shows every GPU and what is on it.
func (c *Client) GPUs(ctx context.Context) (launcherapi.GPUList, error) {
	return do[launcherapi.GPUList](ctx, c, call{method: http.MethodGet, path: "/v2/gpus"})
}
