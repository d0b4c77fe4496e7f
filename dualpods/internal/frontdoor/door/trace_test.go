package door_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/door"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
	"hotseat.dev/hotseat/spec/podmeta"
)

// traceparent is of a client, as in https://www.w3.org/TR/trace-context/#examples-of-http-traceparent-headers.
const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced returns a front door that makes spans, unless there is no recorder.
func traced(e engines, recorder *tracetest.SpanRecorder) *side {
	var tracer trace.Tracer
	if recorder != nil {
		tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	}
	s := &side{own: demand.NewOwn()}
	s.Door, s.dir = door.New(door.Options{
		Own: s.own, Peers: nobody{}, Namespace: func(string) string { return namespace }, Access: access.New(namespace, false),
		Transport: e, SignEvery: time.Hour, Observer: metrics.New(s.own), Tracer: tracer, Logger: slog.New(slog.DiscardHandler),
	})
	s.model(false)
	return s
}

// podOf adds a Pod with a UID.
func (s *side) podOf(name, ip string, uid types.UID) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uid,
		Labels: map[string]string{podmeta.LabelModel: llama.Name, podmeta.LabelModelEntry: "default", podmeta.LabelServes: llama.Name},
	}}
	pod.Status.PodIP = ip
	s.dir.SetPod(pod)
}

// askTraced asks as a client with a trace.
func (s *side) askTraced() int {
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model": "llama", "prompt": "x"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("traceparent", traceparent)
	got := httptest.NewRecorder()
	s.ServeHTTP(got, r)
	return got.Code
}

func TestTraceShowsWhatARequestWaitedFor(t *testing.T) {
	recorder, heard := tracetest.NewSpanRecorder(), make(chan string, 2)
	s := traced(func(r *http.Request) (*http.Response, error) {
		heard <- r.Header.Get("traceparent")
		if r.URL.Hostname() == "10.0.0.1" {
			return nil, errors.New("connection refused")
		}
		return answered(r), nil
	}, recorder)
	code := make(chan int)
	go func() { code <- s.askTraced() }()
	for s.own.Of(llama).Held != 1 {
		<-time.After(time.Millisecond) // between two looks
	}
	s.podOf("bad", "10.0.0.1", "0b4a4d0e-6b1c-4e6f-8c2b-1f4b7c1d2e3f")
	<-heard
	s.podOf("good", "10.0.0.2", "5d1e2f3a-6b1c-4e6f-8c2b-1f4b7c1d2e3f")
	require.Equal(t, http.StatusOK, <-code)

	spans := map[string][]sdktrace.ReadOnlySpan{}
	for _, span := range recorder.Ended() {
		spans[span.Name()] = append(spans[span.Name()], span)
		assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", span.SpanContext().TraceID().String(), "the client's trace goes on")
	}
	root := spans["POST /v1/completions"]
	require.Len(t, root, 1)
	assert.Equal(t, "00f067aa0ba902b7", root[0].Parent().SpanID().String())
	require.NotEmpty(t, spans["hold"])
	require.Len(t, spans["choose"], 2)
	require.Len(t, spans["proxy"], 2)
	for _, name := range []string{"hold", "choose", "proxy"} {
		for _, span := range spans[name] {
			assert.Equal(t, root[0].SpanContext().SpanID(), span.Parent().SpanID(), name)
		}
	}
	require.Len(t, spans["choose"][1].Links(), 1)
	assert.Equal(t, "5d1e2f3a6b1c4e6f8c2b1f4b7c1d2e3f", spans["choose"][1].Links()[0].SpanContext.TraceID().String(), "it leads to the actuation of the Pod")
	assert.Equal(t, codes.Error, spans["proxy"][0].Status().Code)
	assert.Equal(t, codes.Unset, spans["proxy"][1].Status().Code)
	assert.Equal(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-"+spans["proxy"][1].SpanContext().SpanID().String()+"-01", <-heard, "the Pod continues the trace")
}

func TestTraceOfAClientPassesWhereNobodyTraces(t *testing.T) {
	heard := ""
	s := traced(func(r *http.Request) (*http.Response, error) {
		heard = r.Header.Get("traceparent")
		return answered(r), nil
	}, nil)
	s.podOf("a", "10.0.0.1", "a")
	require.Equal(t, http.StatusOK, s.askTraced())
	assert.Equal(t, traceparent, heard)
}

func TestTraceOfARequestThatIsRefusedSaysSo(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	s := traced(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }, recorder)
	for _, name := range []string{"1", "2", "3"} {
		s.podOf(name, "10.0.0."+name, types.UID(name))
	}
	require.Equal(t, http.StatusBadGateway, s.askTraced())
	all := recorder.Ended()
	root := all[len(all)-1]
	assert.Equal(t, "POST /v1/completions", root.Name())
	assert.Equal(t, codes.Error, root.Status().Code)
}

func TestTraceShowsPlacementAndSwapOfTheWait(t *testing.T) {
	seat := func(pod *corev1.Pod, at time.Time) {
		pod.Labels[podmeta.LabelSeat] = "pool"
		pod.Annotations = map[string]string{podmeta.AnnotationSeat: podmeta.Assignment{Model: llama.Name, Entry: "default", Config: "llama-default", Since: at}.Encode()}
	}
	gated := func(pod *corev1.Pod, at time.Time) {
		pod.Annotations = map[string]string{podmeta.AnnotationPlacement: podmeta.Placement{Since: at}.Encode()}
	}
	for name, c := range map[string]struct {
		place  func(*corev1.Pod, time.Time)
		placed time.Duration // after the request
		spans  []string
	}{
		"a Pod that is placed meanwhile":    {gated, time.Second, []string{"placement", "swap"}},
		"a seat that is given the model":    {seat, time.Second, []string{"placement", "swap"}},
		"a Pod that was placed before":      {gated, -time.Second, []string{"swap"}},
		"a clock that is ahead":             {seat, time.Hour, []string{"placement", "swap"}},
		"a Pod that runs its engine itself": {func(*corev1.Pod, time.Time) {}, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			s := traced(func(r *http.Request) (*http.Response, error) { return answered(r), nil }, recorder)
			asked, code := time.Now(), make(chan int)
			go func() { code <- s.askTraced() }()
			time.Sleep(3 * time.Second)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: map[string]string{podmeta.LabelModel: llama.Name, podmeta.LabelModelEntry: "default", podmeta.LabelServes: llama.Name}}}
			pod.Status.PodIP = "10.0.0.1"
			c.place(pod, asked.Add(c.placed))
			s.dir.SetPod(pod)
			require.Equal(t, http.StatusOK, <-code, name)

			spans := map[string]sdktrace.ReadOnlySpan{}
			var below []string
			for _, span := range recorder.Ended() {
				assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", span.SpanContext().TraceID().String(), name)
				spans[span.Name()] = span
				if span.Name() == "placement" || span.Name() == "swap" {
					below = append(below, span.Name())
				}
			}
			require.Equal(t, c.spans, below, name)
			hold := spans["hold"]
			for _, part := range below {
				assert.Equal(t, hold.SpanContext().SpanID(), spans[part].Parent().SpanID(), "%s: %s", name, part)
			}
			if len(below) > 0 {
				assert.Equal(t, hold.StartTime(), spans[below[0]].StartTime(), name)
				assert.Equal(t, hold.EndTime(), spans["swap"].EndTime(), name)
			}
			if len(below) == 2 {
				assert.Equal(t, spans["placement"].EndTime(), spans["swap"].StartTime(), name)
				assert.Equal(t, min(c.placed, 3*time.Second), spans["swap"].StartTime().Sub(asked), name)
			}
		})
	}
}
