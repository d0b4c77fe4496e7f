package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/launcher/internal/engines/compiled"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/conformance/openapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on a socket, with what stands behind it. Every answer that
// its client gets is held against the API's OpenAPI document.
type rig struct {
	*httptest.Server
	api       *api.Server
	instances *apitest.Instances
	swaps     *apitest.Swaps
	feed      *eventlog.Log
	logs      *outlog.Store
	document  *openapi.Document
	client    *http.Client
	logDir    string
}

const ring = 8 // events that the feed keeps

func newRig(t *testing.T, change ...func(*api.Options)) *rig {
	t.Helper()
	dir := t.TempDir()
	logs, err := outlog.Open(outlog.Options{Dir: dir})
	require.NoError(t, err)
	r := &rig{logDir: dir, feed: eventlog.New(ring, 0), logs: logs, swaps: &apitest.Swaps{}}
	r.instances = apitest.NewInstances(r.feed, logs)
	caches, err := compiled.Open(compiled.Options{Dir: t.TempDir(), Starting: func() bool { return false }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, caches.Close()) })
	opts := api.Options{
		Instances: r.instances, Swaps: r.swaps, PortLeases: &apitest.PortLeases{}, FrontDoor: &apitest.FrontDoor{}, Events: r.feed, Logs: logs, Models: apitest.NewModels(), CompileCaches: caches, Version: "test",
		Ready:        func() launcherapi.Ready { return launcherapi.Ready{Status: launcherapi.ReadyStatus} },
		StalledSince: func() time.Time { return time.Time{} },
		Preloaders: func() launcherapi.PreloaderList {
			return launcherapi.PreloaderList{Preloaders: []launcherapi.Preloader{}}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = fmt.Fprintln(w, "up 1")
		}),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, c := range change {
		c(&opts)
	}
	r.api = api.New(opts)
	r.Server = httptest.NewServer(r.api)
	t.Cleanup(func() {
		require.NoError(t, r.api.Shutdown(context.Background()))
		r.CloseClientConnections()
		r.Close()
		require.NoError(t, logs.Close())
	})
	r.hold(t, document())
	return r
}

// document is the API's OpenAPI document, read once for all tests.
var document = sync.OnceValue(func() *openapi.Document {
	d, err := api.Document()
	if err != nil {
		panic(err)
	}
	d, err = yaml.YAMLToJSON(d)
	if err != nil {
		panic(err)
	}
	read, err := openapi.Read(d)
	if err != nil {
		panic(err)
	}
	return read
})

// hold has every answer that the rig's client gets held against a document.
func (r *rig) hold(t *testing.T, document *openapi.Document) {
	t.Helper()
	r.document = document
	r.client = &http.Client{Transport: document.Transport(r.Client().Transport, func(err error) { t.Error(err) })}
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t *testing.T) launcherapi.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), a.body)
	return decode[launcherapi.Problem](t, a.body)
}

func decode[T any](t *testing.T, document string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(document))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&v), document)
	return v
}

// do makes a call and reads the whole answer. header holds names and values by
// turns.
func (r *rig) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	resp := r.open(t, context.Background(), method, path, body, header...)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(content)}
}

// open makes a call and leaves the answer to be read.
func (r *rig) open(t *testing.T, ctx context.Context, method, path, body string, header ...string) *http.Response {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, content)
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp, err := r.client.Do(req)
	require.NoError(t, err)
	return resp
}

// create makes an instance that is awake.
func (r *rig) create(t *testing.T, id string) {
	t.Helper()
	got := r.do(t, http.MethodPut, "/v2/vllm/instances/"+id, `{"options":"--model m"}`)
	require.Equal(t, http.StatusCreated, got.status, got.body)
}

// writeLog adds to the log of an instance.
func (r *rig) writeLog(t *testing.T, id, text string) {
	t.Helper()
	name, ok := r.logs.Latest(id)
	require.True(t, ok)
	f, err := os.OpenFile(filepath.Join(r.logDir, name), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, errors.Join(err, f.Close()))
}
