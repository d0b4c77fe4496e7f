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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/api"
	"hotseat.dev/hotseat/launcher/internal/feed"
	"hotseat.dev/hotseat/launcher/internal/outlog"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/conformance/openapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instances is a supervisor that keeps its instances in a map, obeys at once,
// and records what was asked of it.
type instances struct {
	feed *feed.Feed
	logs *outlog.Store

	mu    sync.Mutex
	byID  map[string]launcherapi.Instance
	over  map[string]chan struct{}
	calls []string
	fail  error // what the next call comes to
	hold  chan struct{}
	panic bool
}

func (f *instances) called(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	if f.panic {
		panic("on purpose")
	}
	err := f.fail
	f.fail = nil
	return err
}

func (f *instances) record() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *instances) failNext(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *instances) put(id string, state launcher.State, kind launcherapi.EventType) launcherapi.Instance {
	i := f.byID[id]
	i.InstanceID, i.State, i.Status = id, string(state), state.Status()
	i.Engine, i.ServedModelNames = "vllm", []string{i.Model}
	i.Revision = f.feed.Append(kind, i)
	f.byID[id] = i
	return i
}

func (f *instances) Create(c supervisor.Create) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("create %q gpus=%v pinned=%s", c.ID, c.Spec.GPUUUIDs, c.Spec.Annotations[launcherapi.AnnotationPinned]); err != nil {
		return launcherapi.Instance{}, err
	}
	id := c.ID
	if id == "" {
		id = fmt.Sprintf("made-%d", len(f.byID))
	}
	if _, taken := f.byID[id]; taken {
		return launcherapi.Instance{}, launcher.Existsf("Instance with ID %s already exists", id)
	}
	f.byID[id] = launcherapi.Instance{Options: c.Spec.Options, Args: c.Spec.Args, GPUUUIDs: c.Spec.GPUUUIDs, Annotations: c.Spec.Annotations, EnvVars: c.Spec.EnvVars, Model: "m"}
	f.over[id] = make(chan struct{})
	file, _, err := f.logs.Create(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	_ = file.Close()
	return f.put(id, launcher.Starting, launcherapi.EventCreated), nil
}

func (f *instances) Get(id string) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("get %q", id); err != nil {
		return launcherapi.Instance{}, err
	}
	i, ok := f.byID[id]
	if !ok {
		return i, launcher.NotFound(id)
	}
	return i, nil
}

func (f *instances) List() ([]launcherapi.Instance, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.called("list")
	var all []launcherapi.Instance
	for _, i := range f.byID {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b launcherapi.Instance) int { return int(a.Revision) - int(b.Revision) })
	return all, f.feed.Revision()
}

func (f *instances) verb(id, name string, ask supervisor.Ask, to launcher.State) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("%s %q level=%d drain=%s limit=%s", name, id, ask.Level, ask.Drain, ask.Limit); err != nil {
		return launcherapi.Instance{}, err
	}
	if _, ok := f.byID[id]; !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	return f.put(id, to, launcherapi.EventUpdated), nil
}

func (f *instances) Sleep(id string, ask supervisor.Ask) (launcherapi.Instance, error) {
	return f.verb(id, "sleep", ask, launcher.FallingAsleep)
}

func (f *instances) Wake(id string, ask supervisor.Ask) (launcherapi.Instance, error) {
	return f.verb(id, "wake", ask, launcher.Waking)
}

func (f *instances) AwaitVerb(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return launcherapi.Instance{}, fmt.Errorf("cannot wait: %w", context.Cause(ctx))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("await %q %s", id, want); err != nil {
		return launcherapi.Instance{}, err
	}
	return f.put(id, want, launcherapi.EventUpdated), nil
}

func (f *instances) Delete(_ context.Context, id string) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("delete %q", id); err != nil {
		return launcherapi.Instance{}, err
	}
	if _, ok := f.byID[id]; !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	return f.forget(id), nil
}

func (f *instances) forget(id string) launcherapi.Instance {
	i := f.put(id, launcher.Stopped, launcherapi.EventDeleted)
	close(f.over[id])
	delete(f.byID, id)
	return i
}

func (f *instances) DeleteAll(context.Context) ([]launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("delete all"); err != nil {
		return nil, err
	}
	var out []launcherapi.Instance
	for id := range f.byID {
		out = append(out, f.forget(id))
	}
	return out, nil
}

func (f *instances) LogName(id string) (string, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("log %q", id); err != nil {
		return "", nil, err
	}
	name, _ := f.logs.Latest(id)
	over, ok := f.over[id]
	if !ok {
		return "", nil, launcher.NotFound(id)
	}
	return name, over, nil
}

func (f *instances) GPUs() launcherapi.GPUList {
	return launcherapi.GPUList{Source: "simulated", GPUs: []launcherapi.GPU{{
		UUID: "GPU-a", Healthy: true, MemoryTotalBytes: 80 << 30,
		Awake: []launcherapi.GPUHolder{{InstanceID: "a", State: "awake", Bytes: 1 << 30}}, Sleepers: []launcherapi.GPUHolder{},
	}}}
}

// swaps gives back a run that was laid ready, and records the request.
type swaps struct {
	mu   sync.Mutex
	run  *swapRun
	err  error
	reqs []launcherapi.SwapRequest
	keys []string
}

func (f *swaps) Begin(req launcherapi.SwapRequest, key string) (api.SwapRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reqs, f.keys = append(f.reqs, req), append(f.keys, key)
	if f.err != nil {
		return nil, f.err
	}
	return f.run, nil
}

// swapRun is a swap whose steps the test sends; closing them ends it.
type swapRun struct {
	steps  chan launcherapi.SwapProgress
	result launcherapi.SwapResult
	err    error
	left   chan struct{} // closed when somebody stopped waiting before the end
}

func (r *swapRun) ID() string { return r.result.SwapID }

func (r *swapRun) Follow(ctx context.Context, tell func(launcherapi.SwapProgress) error) error {
	for {
		select {
		case p, more := <-r.steps:
			if !more {
				return nil
			}
			if err := tell(p); err != nil {
				return err
			}
		case <-ctx.Done():
			close(r.left)
			return context.Cause(ctx)
		}
	}
}

func (r *swapRun) Wait(ctx context.Context) (launcherapi.SwapResult, error) {
	if err := r.Follow(ctx, func(launcherapi.SwapProgress) error { return nil }); err != nil {
		return launcherapi.SwapResult{}, err
	}
	return r.result, r.err
}

// rig is a server on a socket, with what stands behind it. Every answer that
// its client gets is held against the server's own OpenAPI document.
type rig struct {
	*httptest.Server
	api       *api.Server
	instances *instances
	swaps     *swaps
	feed      *feed.Feed
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
	r := &rig{logDir: dir, feed: feed.New(ring, 0), logs: logs, swaps: &swaps{}}
	r.instances = &instances{feed: r.feed, logs: logs, byID: map[string]launcherapi.Instance{}, over: map[string]chan struct{}{}}
	opts := api.Options{
		Instances: r.instances, Swaps: r.swaps, Events: r.feed, Logs: logs, Version: "test",
		Ready: func() launcherapi.Ready { return launcherapi.Ready{Status: launcherapi.ReadyStatus} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = fmt.Fprintln(w, "up 1")
		}),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, c := range change {
		c(&opts)
	}
	r.api, err = api.New(opts)
	require.NoError(t, err)
	r.Server = httptest.NewServer(r.api)
	t.Cleanup(func() {
		require.NoError(t, r.api.Shutdown(context.Background()))
		r.CloseClientConnections()
		r.Close()
		require.NoError(t, logs.Close())
	})
	document := httptest.NewRecorder()
	r.api.ServeHTTP(document, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	r.document, err = openapi.Read(document.Body.Bytes())
	if opts.Access == nil {
		require.NoError(t, err)
		r.client = &http.Client{Transport: r.document.Transport(r.Client().Transport, func(err error) { t.Error(err) })}
	}
	return r
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
	client := r.client
	if client == nil {
		client = r.Client()
	}
	resp, err := client.Do(req)
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
