package client

import (
	"context"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const modelsPath = "/v2/models"

// PullModel has a model fetched into the launcher's model store, and returns once its
// source has said what it consists of: the fetch goes on by itself.
func (c *Client) PullModel(ctx context.Context, uri string) (launcherapi.Model, error) {
	return do[launcherapi.Model](ctx, c, call{method: http.MethodPut, path: modelsPath, body: launcherapi.ModelRequest{URI: uri}})
}

// Models shows every model of the launcher's model store.
func (c *Client) Models(ctx context.Context) (launcherapi.ModelList, error) {
	return do[launcherapi.ModelList](ctx, c, call{method: http.MethodGet, path: modelsPath})
}

// Model shows one model.
func (c *Client) Model(ctx context.Context, id string) (launcherapi.Model, error) {
	return do[launcherapi.Model](ctx, c, call{method: http.MethodGet, path: modelsPath + "/" + url.PathEscape(id)})
}

// RemoveModel ends the fetch of a model, and removes it.
func (c *Client) RemoveModel(ctx context.Context, id string) (launcherapi.Model, error) {
	return do[launcherapi.Model](ctx, c, call{method: http.MethodDelete, path: modelsPath + "/" + url.PathEscape(id)})
}
