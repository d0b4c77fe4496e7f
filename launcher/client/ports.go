package client

import (
	"context"
	"net/http"
	"net/url"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// LeasePorts leases ports for an instance that is yet to be created with that id, or renews
// the lease. Without such an instance the lease expires after 60 s.
func (c *Client) LeasePorts(ctx context.Context, id string, count int) (launcherapi.PortLease, error) {
	return do[launcherapi.PortLease](ctx, c, call{method: http.MethodPut, path: portLeasePath(id), body: launcherapi.PortLeaseRequest{Count: count}})
}

// GiveBackPorts ends a port lease that no instance has taken.
func (c *Client) GiveBackPorts(ctx context.Context, id string) (launcherapi.PortLease, error) {
	return do[launcherapi.PortLease](ctx, c, call{method: http.MethodDelete, path: portLeasePath(id)})
}

func portLeasePath(id string) string { return "/v2/port-leases/" + url.PathEscape(id) }
