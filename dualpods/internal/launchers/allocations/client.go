// Package allocations is the client of the agents of nodes: it speaks package
// podresourcesapi, and reads the ids of devices.
package allocations

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// Client asks the agents. Its methods may be called from several goroutines
// at once.
type Client struct{ http *http.Client }

// nameOf is the key of a context's value: the name in the certificate of the
// agent that is asked.
type nameOf struct{}

// New makes a client. secure is how an agent of that name is called.
func New(secure func(ctx context.Context, name string) (*tls.Config, error)) *Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect is no answer
	return &Client{http: &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		DialContext: dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			name, _ := ctx.Value(nameOf{}).(string)
			config, err := secure(ctx, name)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}}}
}

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Pods are those that have devices of the node, as its kubelet tells the agent at
// target.
func (c *Client) Pods(ctx context.Context, target nodeview.Target) (pods []podresourcesapi.Pod, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot ask the agent at %s: %w", target.Address, err)
		}
	}()
	ctx = context.WithValue(ctx, nameOf{}, target.Name)
	u := url.URL{Scheme: "https", Host: target.Address, Path: podresourcesapi.Path}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, podresourcesapi.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		problem := podresourcesapi.Problem{Detail: http.StatusText(resp.StatusCode)}
		_ = json.Unmarshal(answer, &problem) // else its status says what there is to say
		return nil, fmt.Errorf("%d %s", resp.StatusCode, problem.Detail)
	case len(answer) > podresourcesapi.MaxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", podresourcesapi.MaxAnswer)
	}
	var told podresourcesapi.Pods
	if err := json.Unmarshal(answer, &told); err != nil {
		return nil, fmt.Errorf("cannot read the answer as a list of Pods: %w", err)
	}
	return told.Pods, nil
}
