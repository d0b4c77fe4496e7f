package client

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Service returns the launcher's name, version and operations.
func (c *Client) Service(ctx context.Context) (launcherapi.Service, error) {
	return do[launcherapi.Service](ctx, c, call{method: http.MethodGet, path: "/"})
}

// Health returns nil if the launcher runs.
func (c *Client) Health(ctx context.Context) error {
	_, err := do[launcherapi.Health](ctx, c, call{method: http.MethodGet, path: "/health"})
	return err
}

// Ready returns nil if the launcher accepts calls. [IsUnavailable] recognizes the error of a
// launcher that starts or closes.
func (c *Client) Ready(ctx context.Context) error {
	_, err := do[launcherapi.Ready](ctx, c, call{method: http.MethodGet, path: "/readyz"})
	return err
}

// Metrics returns the metrics in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.text(ctx, "/metrics") }

// OpenAPI returns the launcher's OpenAPI document as JSON.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) { return c.text(ctx, "/openapi.json") }
