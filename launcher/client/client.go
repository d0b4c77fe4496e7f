package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Options of a Client.
type Options struct {
	// Server is the address of the launcher, such as "http://127.0.0.1:8001";
	// without a scheme the client uses http.
	Server string
	// Token is sent with every call; empty: no token is sent.
	Token string
	// TLS configures calls of an https address; nil: Go's defaults.
	TLS *tls.Config
	// HTTPClient makes the calls; TLS is then ignored. It must have no timeout of its own,
	// which would cut streams and long calls. Nil: the Client creates one.
	HTTPClient *http.Client
	// Streams makes the calls of watches, which stay open. Nil: HTTPClient.
	Streams *http.Client
	// Heartbeat is the interval of heartbeats on a quiet stream, at least 100 ms. The client
	// closes a stream that is silent for three intervals. 0: 10 s.
	Heartbeat time.Duration
	// Reconnect is how long the Client tries to resume a broken stream before it returns the
	// error. If it has never reached the launcher, it returns the error at once. 0: the Client
	// tries for ever, in both cases.
	Reconnect time.Duration
	// Header returns headers for a call from its context, such as the traceparent of
	// W3C Trace Context. Nil: no headers.
	Header func(context.Context) map[string]string
	// Pace is called before each event of a watch is read, and may wait. So a program that
	// watches a thousand launchers can limit the rate of each. Nil: no limit.
	Pace func(context.Context) error
	// Lost is called each time that a stream has broken and before it is resumed. Nil: no call.
	Lost func(error)
	// Logger logs that a stream broke and is resumed. Nil: no log.
	Logger *slog.Logger
}

// Client is a client of one launcher. Its methods may be called from several goroutines at
// once.
type Client struct {
	base      *url.URL
	token     string
	http      *http.Client
	own       bool // the Client has created http, and closes it
	streams   *http.Client
	heartbeat time.Duration
	reconnect time.Duration
	header    func(context.Context) map[string]string
	pace      func(context.Context) error
	lost      func(error)
	reached   atomic.Bool // the launcher has answered at some time
	log       *slog.Logger
}

const (
	defaultHeartbeat = 10 * time.Second
	dialTimeout      = 10 * time.Second
)

// New makes a Client. It does not connect yet.
func New(opts Options) (*Client, error) {
	server := opts.Server
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("cannot use the address %q: %w", opts.Server, err)
	}
	if base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("cannot use the address %q: write it like http://127.0.0.1:8001", opts.Server)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	c := &Client{base: base, token: opts.Token, http: opts.HTTPClient, streams: opts.Streams, heartbeat: opts.Heartbeat, reconnect: opts.Reconnect, header: opts.Header, pace: opts.Pace, lost: opts.Lost, log: opts.Logger}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: defaultHeartbeat}).DialContext
		transport.TLSClientConfig = opts.TLS
		c.http, c.own = &http.Client{Transport: transport}, true
	}
	if c.streams == nil {
		c.streams = c.http
	}
	if c.heartbeat == 0 {
		c.heartbeat = defaultHeartbeat
	}
	if c.header == nil {
		c.header = func(context.Context) map[string]string { return nil }
	}
	if c.pace == nil {
		c.pace = func(context.Context) error { return nil }
	}
	if c.lost == nil {
		c.lost = func(error) {}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Close closes idle connections. It does not interrupt running calls.
func (c *Client) Close() {
	if c.own {
		c.http.CloseIdleConnections()
	}
}

// call is one request.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	header map[string]string
	body   any       // nil: none
	stream io.Reader // sent in place of a body, as it is read; nil: none
	lasts  bool      // it is a watch
}

// instancePath is the escaped path of an instance.
func instancePath(id, verb string) string {
	return "/v2/vllm/instances/" + url.PathEscape(id) + verb
}

// send makes a request and returns the answer, whose body the caller closes, or an
// error for any answer but a success.
func (c *Client) send(ctx context.Context, what call) (*http.Response, error) {
	body := what.stream
	if what.body != nil {
		content, err := json.Marshal(what.body)
		if err != nil {
			return nil, fmt.Errorf("cannot write the body of %s %s: %w", what.method, what.path, err)
		}
		body = bytes.NewReader(content)
	}
	target := c.base.String() + what.path
	if len(what.query) > 0 {
		target += "?" + what.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, what.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("cannot call %s %s: %w", what.method, what.path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, value := range c.header(ctx) {
		req.Header.Set(name, value)
	}
	for name, value := range what.header {
		req.Header.Set(name, value)
	}
	by := c.http
	if what.lasts {
		by = c.streams
	}
	resp, err := by.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the launcher: %w", err)
	}
	c.reached.Store(true)
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp, nil
}

// do makes a request and reads the answer into a new T.
func do[T any](ctx context.Context, c *Client, what call) (T, error) {
	var out T
	resp, err := c.send(ctx, what)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	content, err := readAll(resp.Body, maxObject)
	if err == nil {
		_, err = costWithin("it", content)
	}
	if err == nil {
		err = json.Unmarshal(content, &out)
	}
	if err != nil {
		return out, fmt.Errorf("cannot read the answer to %s %s: %w", what.method, what.path, err)
	}
	return out, nil
}

// text makes a request and returns the body of the answer.
func (c *Client) text(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := readAll(resp.Body, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer to GET %s: %w", path, err)
	}
	return content, nil
}
