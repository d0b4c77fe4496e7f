package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/stretchr/testify/require"
)

// client keeps no connection, follows no redirect, and waits as long as the
// test does.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// step is one request of the conversation.
type step struct {
	name    string // unique
	method  string
	path    string
	body    string            // sent as JSON unless header says otherwise
	header  map[string]string // an empty value takes a header away
	metrics metrics
	// meanwhile are the steps taken while this one is not answered yet, from
	// the moment that begun tells.
	meanwhile []step
	begun     begun
}

// metrics is what is written down of an answer of metrics.
type metrics struct {
	families bool   // name and type of each of vLLM's
	samples  string // the family whose values count
}

// begun is when the steps meanwhile may be taken.
type begun int

const (
	streaming begun = iota // the first events have come
	running                // the engine says that it works on a request
	held                   // no answer came for a while
)

// exchange is what a client saw of a step.
type exchange struct {
	Step      string            `json:"step"`
	Request   string            `json:"request"`
	Status    int               `json:"status"`
	Header    map[string]string `json:"header"`
	Body      any               `json:"body,omitempty"`
	Events    []any             `json:"events,omitempty"` // of a stream; equal ones in a row stand once
	Cut       bool              `json:"cut,omitempty"`    // the connection broke before the answer ended
	Meanwhile []exchange        `json:"meanwhile,omitempty"`
}

// watched are the headers that are compared.
var watched = []string{
	"Content-Type", "Allow", "Location", "Server", "Vary", "Www-Authenticate",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Allow-Credentials", "Access-Control-Max-Age", "X-Request-Id",
}

// take makes the request of a step and writes down the answer.
func (e *engine) take(s step) exchange {
	e.t.Helper()
	x, body := e.open(s)
	defer body.Close()
	return e.read(s, x, bufio.NewReader(body))
}

// open makes the request and returns when the answer begins.
func (e *engine) open(s step) (exchange, io.ReadCloser) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), s.method, e.url(s.path), strings.NewReader(s.body))
	require.NoError(e.t, err)
	if s.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range s.header {
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := client.Do(req)
	require.NoError(e.t, err, s.name)
	x := exchange{Step: s.name, Request: s.method + " " + s.path, Status: resp.StatusCode, Header: map[string]string{}}
	for _, name := range watched {
		if v := resp.Header.Get(name); v != "" {
			x.Header[strings.ToLower(name)] = e.plain(v)
		}
	}
	x.Header["length"] = "declared"
	if resp.ContentLength < 0 {
		x.Header["length"] = strings.Join(resp.TransferEncoding, " ")
	}
	return x, resp.Body
}

// read reads the answer to its end. Of a stream some events may have been read
// before.
func (e *engine) read(s step, x exchange, body *bufio.Reader) exchange {
	e.t.Helper()
	if x.streams() {
		return e.events(x, body, -1)
	}
	data, err := io.ReadAll(body)
	x.Cut = err != nil
	switch {
	case s.metrics != metrics{}:
		x.Body = s.metrics.of(string(data))
	case x.Header["content-type"] == "application/json" && len(data) > 0:
		x.Body = e.readJSON(data)
	case len(data) > 0:
		x.Body = e.plain(string(data))
	}
	return x
}

func (x exchange) streams() bool {
	return strings.HasPrefix(x.Header["content-type"], "text/event-stream")
}

// events reads so many events of a stream, all if the number is negative. What
// is not framed as one stands as text.
func (e *engine) events(x exchange, r *bufio.Reader, n int) exchange {
	e.t.Helper()
	for ; n != 0; n-- {
		block, err := readBlock(r)
		data, framed := strings.CutPrefix(block, "data: ")
		var event any = block
		if framed && strings.HasPrefix(data, "{") {
			event = e.readJSON([]byte(data))
		}
		if block != "" && (len(x.Events) == 0 || !reflect.DeepEqual(x.Events[len(x.Events)-1], event)) {
			x.Events = append(x.Events, event)
		}
		if err != nil {
			x.Cut = !errors.Is(err, io.EOF)
			return x
		}
	}
	return x
}

// readBlock reads up to the next empty line.
func readBlock(r *bufio.Reader) (string, error) {
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if line != "" && line != "\n" {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		if err != nil || line == "\n" {
			return strings.Join(lines, "\n"), err
		}
	}
}

func (e *engine) readJSON(data []byte) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(e.t, d.Decode(&v), "%s", data)
	return e.normal(v, "")
}

// of writes down what counts of the metrics.
func (m metrics) of(text string) map[string]any {
	families, samples := map[string]any{}, map[string]any{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		kind, isKind := strings.CutPrefix(line, "# TYPE vllm:")
		switch {
		case isKind && m.families:
			name, kind, _ := strings.Cut(kind, " ")
			families[name] = kind
		case m.samples != "" && strings.HasPrefix(line, m.samples+"{"):
			i := strings.LastIndexByte(line, ' ')
			samples[line[:i]] = line[i+1:]
		}
	}
	return map[string]any{"families": families, "samples": samples}
}
