package telemetry

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// receiver takes spans by OTLP over HTTP, as a collector does.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracev1.Span
	from  []string // service.name of each resource
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, "/v1/traces", req.URL.Path)
		assert.Equal(t, "application/x-protobuf", req.Header.Get("Content-Type"))
		body := io.Reader(req.Body)
		if req.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(req.Body); !assert.NoError(t, err) {
				return
			}
		}
		content, err := io.ReadAll(body)
		assert.NoError(t, err)
		var sent collector.ExportTraceServiceRequest
		assert.NoError(t, proto.Unmarshal(content, &sent))
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, of := range sent.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					r.from = append(r.from, a.Value.GetStringValue())
				}
			}
			for _, scope := range of.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

// traced makes a Telemetry whose spans go there once close is called.
func (r *receiver) traced(t *testing.T) (of *Telemetry, send func()) {
	t.Helper()
	t.Setenv(endpoint, r.URL)
	tracing, err := OpenTracing(t.Context(), func(name string) string { return map[string]string{endpoint: r.URL}[name] })
	require.NoError(t, err)
	require.NotNil(t, tracing)
	return New(Options{Streams: func() (int, int) { return 0, 0 }, Followers: func() int { return 0 }, Tracing: tracing}), func() { require.NoError(t, tracing.Close()) }
}

// tree shows spans by their names, in the order of their beginnings, each below
// its parent.
func (r *receiver) tree(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.spans, func(a, b *tracev1.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	var out strings.Builder
	var below func(parent []byte, depth int)
	below = func(parent []byte, depth int) {
		for _, s := range r.spans {
			if string(s.ParentSpanId) == string(parent) {
				fmt.Fprintf(&out, "%s%s\n", strings.Repeat("  ", depth), s.Name)
				below(s.SpanId, depth+1)
			}
		}
	}
	below(nil, 0)
	return out.String()
}

func (r *receiver) span(t *testing.T, name string) *tracev1.Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no such span", name)
	return nil
}

func attributesOf(s *tracev1.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

// endpoint is the variable that names the collector.
const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// hotLauncher answers every swap as done, and notes the header that came with it.
type hotLauncher struct {
	provider.Provider
	header map[string]string
	err    error
}

func (l *hotLauncher) SwapOnce(ctx context.Context, _ string, _ launcherapi.SwapRequest, _ func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	l.header = Header(ctx)
	result := launcherapi.SwapResult{
		SwapID: "swap-1", Outcome: launcherapi.OutcomeDone, BeganAt: time.Now().Add(-30 * time.Millisecond), TotalMS: 30,
		Phases: []launcherapi.PhaseTime{
			{Name: "admit", DurationMS: 1},
			{Name: "sleep", InstanceID: "other", BeganMS: 1, DurationMS: 9},
			{Name: "wake", InstanceID: "instance-x", BeganMS: 10, DurationMS: 19},
			{Name: "open", InstanceID: "instance-x", BeganMS: 29.5, DurationMS: 0.5},
		},
	}
	if l.err != nil {
		result.Outcome = launcherapi.OutcomeUndone
		return launcherapi.SwapResult{}, &client.UndoneError{Phase: "wake", Result: result, Err: l.err}
	}
	return result, nil
}

// on is a sight of the requester of that UID; the time of its write is now.
func on(uid types.UID, row string, do decide.Action) binding.Sight {
	s := seen(row, do)
	s.Observation.Requester.UID = uid
	s.Observation.Node.Name = node
	s.Observation.Requester.Created = time.Now().Add(-time.Second)
	return s
}

// forUID is the context of a call that package binding makes for a requester.
func forUID(t *testing.T, uid types.UID) context.Context {
	t.Helper()
	return dualpods.ForRequester(t.Context(), uid)
}

func TestOneActuationIsOneTrace(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	l := &hotLauncher{}

	unplaced := on(uid, "not running", decide.Nothing)
	unplaced.Node, unplaced.Observation.Node.Name = "", ""
	m.Saw(unplaced)
	m.Saw(on(uid, "not running", decide.Nothing))
	m.Saw(on(uid, "requester silent", decide.Retry))
	m.Saw(on(uid, "requester silent", decide.Retry))
	m.asked(forUID(t, uid), call{time.Now(), time.Now(), nil})
	m.Saw(on(uid, "no finalizer", decide.AddFinalizer))
	m.Saw(on(uid, "no record", decide.AddRecord))
	m.Saw(on(uid, "swap not asked", decide.Swap))
	_, err := m.Launcher(l).SwapOnce(forUID(t, uid), "key", launcherapi.SwapRequest{}, nil)
	require.NoError(t, err)
	m.Saw(on(uid, "carries nothing", decide.Bind))
	m.Saw(on(uid, "not ready", decide.BecomeReady))
	m.Saw(on(uid, "not published", decide.Publish))
	m.Saw(on(uid, "", decide.Nothing))
	last := ready(on(uid, "", decide.Nothing), false)
	last.Observation.Record.GPUs = []string{"GPU-1"}
	m.Saw(last)
	m.Saw(last)
	send()

	assert.Equal(t, `actuation
  wait: not running
  wait: requester silent
  accelerators
  add finalizer
  add record
  swap
    admit
    sleep
    wake
    open
  bind
  become ready
  wait: Pod ready
  publish
`, r.tree(t))
	root, swap := r.span(t, "actuation"), r.span(t, "swap")
	trace := strings.ReplaceAll(string(uid), "-", "")
	assert.Equal(t, trace, hex.EncodeToString(root.TraceId), "whoever knows the requester finds its trace")
	assert.Equal(t, map[string]string{"traceparent": "00-" + trace + "-" + hex.EncodeToString(swap.SpanId) + "-01"}, l.header)
	attributes := attributesOf(root)
	for name, want := range map[string]string{
		"k8s.namespace.name": "ns-x", "k8s.pod.name": "pod-x", "k8s.pod.uid": string(uid), "k8s.node.name": node,
		"hotseat.instance": "instance-x", "hotseat.launcher": "launcher-x", "hotseat.path": "hot",
	} {
		assert.Equal(t, want, attributes[name], name)
	}
	assert.Equal(t, tracev1.Status_STATUS_CODE_UNSET, root.GetStatus().GetCode())
	assert.Equal(t, "done", attributesOf(swap)["hotseat.outcome"])
	assert.Contains(t, r.from, "hotseat-controller")
	wake := r.span(t, "wake")
	assert.Equal(t, 19*time.Millisecond, time.Duration(wake.EndTimeUnixNano-wake.StartTimeUnixNano))
	assert.LessOrEqual(t, r.span(t, "open").EndTimeUnixNano, swap.EndTimeUnixNano)
	assert.Empty(t, m.early)
}

// TestTheTraceHasNoGapWhereStepsAreTriedAgainAndThePodIsReadyMeanwhile: the
// kubelet writes to the Pod at the same time, so that the first write of labels and
// status is refused; when the second is done the Pod is ready.
func TestTheTraceHasNoGapWhereStepsAreTriedAgainAndThePodIsReadyMeanwhile(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	created := time.Now().Truncate(time.Second)
	at := func(s binding.Sight, began, ended time.Duration) binding.Sight {
		s.Observation.Requester.Created = created
		s.Began, s.Ended = created.Add(began), created.Add(ended)
		return s
	}
	ms := time.Millisecond
	m.Saw(at(on(uid, "not running", decide.Nothing), 0, 0))
	m.Saw(at(on(uid, "carries for another", decide.Unbind), 10*ms, 11*ms))
	m.Saw(at(on(uid, "carries nothing", decide.Bind), 80*ms, 82*ms))
	m.Saw(at(on(uid, "not ready", decide.BecomeReady), 82*ms, 85*ms))
	refused := at(on(uid, "not published", decide.Publish), 85*ms, 90*ms)
	refused.Err = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "pod-x", errors.New("it was changed"))
	m.Saw(refused)
	last := ready(at(on(uid, "", decide.Nothing), 190*ms, 200*ms), false)
	last.Step = decide.Step{Rule: "not published", Do: decide.Publish}
	m.Saw(last)
	send()

	assert.Equal(t, `actuation
  wait: not running
  unbind
  wait: carries for another
  bind
  become ready
  publish
  wait: Pod ready
  wait: not published
  publish
`, r.tree(t))
	root := r.span(t, "actuation")
	shown := root.StartTimeUnixNano // until when there is a span below the root
	for _, s := range r.spans {     // in the order of their beginnings
		if s != root {
			assert.LessOrEqual(t, s.StartTimeUnixNano, shown, s.Name)
			shown = max(shown, s.EndTimeUnixNano)
		}
	}
	assert.Equal(t, root.EndTimeUnixNano, shown)
	assert.Equal(t, created.Add(85*ms).UnixNano(), int64(r.span(t, "wait: Pod ready").StartTimeUnixNano))
	assert.Equal(t, created.Add(200*ms).UnixNano(), int64(root.EndTimeUnixNano))
}

func TestTheWaitForAReadyPodBeginsWhenItsGateIsOpen(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	gated := func(row string, do decide.Action) binding.Sight {
		s := on(uid, row, do)
		s.Observation.Requester.Gate = true
		return s
	}
	m.Saw(gated("not ready", decide.BecomeReady))
	opened := gated("gate shut", decide.OpenGate)
	m.Saw(opened)
	m.Saw(gated("not published", decide.Publish))
	m.Saw(gated("", decide.Nothing))
	m.Saw(ready(gated("", decide.Nothing), false))
	send()
	assert.Equal(t, "actuation\n  become ready\n  open gate\n  wait: Pod ready\n  publish\n", r.tree(t))
	assert.Equal(t, opened.Ended.UnixNano(), int64(r.span(t, "wait: Pod ready").StartTimeUnixNano))
}

func TestASwapThatWasUndoneSaysSoInTheTrace(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	m.Saw(on(uid, "swap not asked", decide.Swap))
	_, err := m.Launcher(&hotLauncher{err: fmt.Errorf("no room")}).SwapOnce(forUID(t, uid), "key", launcherapi.SwapRequest{}, nil)
	require.Error(t, err)
	gone := on(uid, "leaving, released", decide.RemoveFinalizer)
	gone.Leaving = true
	m.Saw(gone)
	send()
	swap := r.span(t, "swap")
	assert.Equal(t, tracev1.Status_STATUS_CODE_ERROR, swap.Status.Code)
	assert.Contains(t, swap.Status.Message, "no room")
	assert.Equal(t, "undone", attributesOf(swap)["hotseat.outcome"])
	r.span(t, "wake")
	assert.Contains(t, r.span(t, "actuation").Status.Message, "leaves")
}

func TestAControllerThatStartsInTheMiddleGoesOnWithTheTrace(t *testing.T) {
	r := newReceiver(t)
	uid := types.UID(uuid.NewString())
	first, send := r.traced(t)
	first.Saw(on(uid, "no record", decide.AddRecord))
	first.Saw(on(uid, "swap not asked", decide.Swap))
	send() // it ends, and has sent what it knew

	second, send := r.traced(t)
	second.Saw(on(uid, "swap not asked", decide.Swap))
	_, err := second.Launcher(&hotLauncher{}).SwapOnce(forUID(t, uid), "key", launcherapi.SwapRequest{}, nil)
	require.NoError(t, err)
	second.Saw(ready(on(uid, "", decide.Nothing), true))
	send()
	assert.Equal(t, "actuation\n  add record\n  swap\n    admit\n    sleep\n    wake\n    open\n", r.tree(t))

	third, send := r.traced(t)
	third.Saw(ready(on(uid, "", decide.Nothing), true))
	third.Saw(ready(on(uid, "", decide.Nothing), true))
	send()
	assert.Equal(t, 1, strings.Count(r.tree(t), "actuation"), "one that is over is not told of again")
}

func TestALauncherWhoseClockIsAheadIsShownBeforeItsAnswer(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	m.Saw(on(uid, "swap not asked", decide.Swap))
	_, over := m.swapping(forUID(t, uid))
	over(launcherapi.SwapResult{BeganAt: time.Now().Add(time.Hour), TotalMS: 5, Phases: []launcherapi.PhaseTime{{Name: "wake", BeganMS: 1, DurationMS: 4}}}, nil)
	send()
	assert.LessOrEqual(t, r.span(t, "wake").EndTimeUnixNano, r.span(t, "swap").EndTimeUnixNano)
}

func TestWithoutACollectorNothingIsTraced(t *testing.T) {
	tracing, err := OpenTracing(t.Context(), func(string) string { return "" })
	require.NoError(t, err)
	assert.Nil(t, tracing)
	require.NoError(t, tracing.Close())
	m := newTelemetry()
	m.asked(forUID(t, "uid-x"), call{})
	m.Saw(seen("no record", decide.AddRecord))
	ctx, over := m.swapping(forUID(t, "uid-x"))
	over(launcherapi.SwapResult{}, nil)
	assert.Nil(t, Header(ctx))
	m.Saw(ready(seen("", decide.Nothing), true))
	assert.Empty(t, m.early)
}
