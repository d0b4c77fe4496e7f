package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// This file makes calls to engines.

// StatusError is an answer with another status than 200.
type StatusError struct {
	Call   string // such as "POST /sleep?level=1"
	Status int
	Body   string // first bytes of the body
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.Call, e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// Refused tells whether a call failed because nothing listens at the port or the socket. A
// socket is a file that an engine makes while it starts, before it listens.
func Refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

const (
	maxAnswer   = 1 << 20 // bytes read of any answer
	maxBodyText = 300     // bytes of an answer that an error shows
)

// newClient makes a client for calls to engines. It has no time limit: a first sleep may
// take minutes, and contexts bound every call. It closes idle connections before any engine
// does (VLLM_HTTP_TIMEOUT_KEEP_ALIVE is a whole number of seconds).
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               nil, // engines are on this machine
			DialContext:         dialURL,
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     500 * time.Millisecond,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// caller makes calls to engines.
type caller struct{ client *http.Client }

// newCaller makes a caller with a client of its own where none is given.
func newCaller(client *http.Client) caller {
	if client == nil {
		client = newClient()
	}
	return caller{client}
}

// Close closes the idle connections.
func (c caller) Close() { c.client.CloseIdleConnections() }

// call makes one call and gives the answer's body, at most maxAnswer bytes.
func (c caller) call(ctx context.Context, method, base, path string, body any, key Secret) (answer []byte, err error) {
	var reader io.Reader
	content, isForm := body.(form)
	if body != nil && !isForm {
		content.contentType = "application/json"
		if content.content, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("cannot encode the body of %s: %w", path, err)
		}
	}
	if body != nil {
		reader = bytes.NewReader(content.content)
	}
	prefix, host := urlOf(base)
	req, err := http.NewRequestWithContext(ctx, method, prefix+path, reader)
	if err != nil {
		return nil, err
	}
	req.Host = cmp.Or(host, req.Host)
	// Every call here may be repeated. This header has net/http do so when the
	// engine has just closed a connection that was idle.
	req.Header["Idempotency-Key"] = nil
	if body != nil {
		req.Header.Set("Content-Type", content.contentType)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+string(key))
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, withoutURL(err, method, path)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{Call: method + " " + path, Status: resp.StatusCode, Body: excerpt(answer)}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer to %s %s: %w", method, path, err)
	}
	return answer, nil
}

// excerpt gives the first bytes of an answer as one line of text.
func excerpt(answer []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(answer[:min(len(answer), maxBodyText)]), "")), " ")
	if len(answer) > maxBodyText {
		text += " …"
	}
	return text
}

// form is the body of a call that is no JSON.
type form struct {
	contentType string
	content     []byte
}
