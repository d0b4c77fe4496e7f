// Package spi is the client of requesters: it speaks package requesterapi.
package spi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// Client asks requesters. Its methods take the address of a requester's SPI,
// such as "10.1.2.3:8081", or "https://10.1.2.3:8081" of one that takes orders by
// TLS, and may be called from several goroutines at once.
type Client struct{ http *http.Client }

// New makes a client. secure is how requesters are called by TLS; without it those
// that take orders by TLS refuse the client, which has no certificate.
func New(secure func(context.Context) (*tls.Config, error)) *Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		MaxIdleConns:        256, // there may be ten thousand requesters, and each is asked in its own time
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     10 * time.Second,
		ReadBufferSize:      1 << 10,
		WriteBufferSize:     1 << 10,
		DisableCompression:  true,
	}
	if secure != nil {
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			config, err := secure(ctx)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		}
	}
	return &Client{http: &http.Client{CheckRedirect: stay, Transport: transport}}
}

// tlsPrefix begins the address of a requester that takes orders by TLS.
const tlsPrefix = "https://"

// stay has a redirect be an answer that is no success: a requester program sends
// the controller nowhere else.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close gives idle connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// RefusedError is an answer that is no success.
type RefusedError struct {
	Call    string // such as "PUT /v1/proxy/config"
	Problem requesterapi.Problem
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.Call, e.Problem.Status, e.Problem.Detail)
}

// Accelerators lists the UUIDs of the requester's GPUs. A *RefusedError says
// that it cannot tell them.
func (c *Client) Accelerators(ctx context.Context, address string) (uuids []string, err error) {
	return uuids, c.call(ctx, http.MethodGet, address, requesterapi.PathAccelerators, nil, nil, &uuids)
}

// Proxy is what the requester is bound to; its State is StateUnbound while that
// is nothing.
func (c *Client) Proxy(ctx context.Context, address string) (requesterapi.Proxy, error) {
	var p requesterapi.Proxy
	err := c.call(ctx, http.MethodGet, address, requesterapi.PathProxyConfig, nil, nil, &p)
	return p, err
}

// Bind has the requester carry traffic.
func (c *Client) Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (requesterapi.Proxy, error) {
	var p requesterapi.Proxy
	err := c.call(ctx, http.MethodPut, address, requesterapi.PathProxyConfig, nil, config, &p)
	return p, err
}

// Hold has the requester, which is unbound, hold connections for a binding that is to come.
// Unbind of that binding ends it.
func (c *Client) Hold(ctx context.Context, address string, hold requesterapi.Hold) (requesterapi.Proxy, error) {
	var p requesterapi.Proxy
	err := c.call(ctx, http.MethodPut, address, requesterapi.PathProxyHold, nil, hold, &p)
	return p, err
}

// Unbind ends that binding, and returns once no connection of it is left, which
// may take the drain timeout.
func (c *Client) Unbind(ctx context.Context, address, binding string, drain time.Duration) (requesterapi.Unbound, error) {
	var u requesterapi.Unbound
	query := url.Values{requesterapi.ParamBinding: {binding}, requesterapi.ParamDrainTimeout: {drain.String()}}
	if drain < requesterapi.DefaultIdleTimeout { // otherwise idle connections would stay open until the drain timeout, and be cut then
		query.Set(requesterapi.ParamIdleTimeout, (drain / 10).String())
	}
	err := c.call(ctx, http.MethodDelete, address, requesterapi.PathProxyConfig, query, nil, &u)
	return u, err
}

// BecomeReady makes the requester, bound as named, ready.
func (c *Client) BecomeReady(ctx context.Context, address, binding string) error {
	return c.call(ctx, http.MethodPost, address, requesterapi.PathBecomeReady, url.Values{requesterapi.ParamBinding: {binding}}, nil, nil)
}

// BecomeUnready makes the requester, bound as named, unready.
func (c *Client) BecomeUnready(ctx context.Context, address, binding string) error {
	return c.call(ctx, http.MethodPost, address, requesterapi.PathBecomeUnready, url.Values{requesterapi.ParamBinding: {binding}}, nil, nil)
}

// SetLog has the requester print a chunk of that log, of at most
// requesterapi.MaxLogChunk bytes, which begins at start. A requester that is
// bound to something else than binding refuses.
func (c *Client) SetLog(ctx context.Context, address, log, binding string, start int64, chunk []byte) (requesterapi.LogPosition, error) {
	var p requesterapi.LogPosition
	query := url.Values{requesterapi.ParamLog: {log}, requesterapi.ParamBinding: {binding}, requesterapi.ParamStartPos: {strconv.FormatInt(start, 10)}}
	err := c.call(ctx, http.MethodPost, address, requesterapi.PathSetLog, query, chunk, &p)
	return p, err
}

// maxAnswer is how many bytes of an answer are read: who makes a requester writes
// its program, and there may be ten thousand of them.
const maxAnswer = 64 << 10

func (c *Client) call(ctx context.Context, method, address, path string, query url.Values, body, into any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot ask the requester at %s: %w", address, err)
		}
	}()
	var reader io.Reader
	contentType := "application/json"
	if raw, ok := body.([]byte); ok {
		reader, contentType = bytes.NewReader(raw), "application/octet-stream"
	} else if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	u := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query.Encode()}
	if host, ok := strings.CutPrefix(address, tlsPrefix); ok {
		u.Scheme, u.Host = "https", host
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), reader)
	if err != nil {
		return err
	}
	req.Header["Idempotency-Key"] = nil // each of these may be sent again when an idle connection breaks
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	// GET of a proxy that nobody is bound to is a 404 with the proxy in it.
	unbound := resp.StatusCode == http.StatusNotFound && method == http.MethodGet && path == requesterapi.PathProxyConfig
	if resp.StatusCode != http.StatusOK && !unbound {
		refused := &RefusedError{Call: method + " " + path}
		if json.Unmarshal(answer, &refused.Problem) != nil || refused.Problem.Status == 0 {
			refused.Problem = requesterapi.Problem{Status: resp.StatusCode, Detail: http.StatusText(resp.StatusCode)}
		}
		return refused
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("cannot read the answer to %s %s as %T: %w", method, path, into, err)
	}
	return nil
}
