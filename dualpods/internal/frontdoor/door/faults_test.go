package door_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// scrape returns the metrics.
func (w *world) scrape() string {
	got := httptest.NewRecorder()
	w.metrics.Handler().ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return got.Body.String()
}

// connect sends the beginning of a request by a connection of its own.
func (w *world) connect(text string) *net.TCPConn {
	w.t.Helper()
	c, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n"))
	require.NoError(w.t, err)
	return c.(*net.TCPConn)
}

// answerOf reads the whole answer of a connection.
func answerOf(t *testing.T, c net.Conn) answer {
	t.Helper()
	got, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return answer{got.StatusCode, got.Header, string(text)}
}

// form is the beginning of a form that is too large to be held.
const form = `POST /v1/audio/transcriptions HTTP/1.1
Host: h
Content-Type: multipart/form-data; boundary=b
Content-Length: 100000000

--b
Content-Disposition: form-data; name="model"

llama
--b
Content-Disposition: form-data; name="file"; filename="f"

`

func (w *world) speech() {
	w.model(func(m *v1alpha1.Model) {
		m.Spec.Features = []v1alpha1.ModelFeature{v1alpha1.FeatureSpeechToText, v1alpha1.FeatureTextGeneration}
	})
}

func TestMistakeInALargeBodyIsNoFailureOfAPod(t *testing.T) {
	w := newWorld(t)
	w.direct = true
	w.speech()
	w.pod("gpu", answers("a"))
	got := answerOf(t, w.connect(form+strings.Repeat("x", 1<<20)+"\n--b\nContent-Disposition: form-data; name=\"model\"\n\nllama\n--b\n"))
	assert.Equal(t, http.StatusBadRequest, got.status)
	assert.Contains(t, got.body, "names a model twice")
	c := w.connect(form + strings.Repeat("x", 1<<20))
	require.NoError(t, c.Close()) // while the Pod reads
	w.awaitCode("499")
	assert.Equal(t, http.StatusOK, w.ask("/v1/chat/completions", chat).status)
	assert.NotContains(t, w.scrape(), "hotseat_frontdoor_retries_total{")
	assert.NotContains(t, w.scrape(), "hotseat_frontdoor_hold_duration_seconds_count{", "the Pod is not passed over")
}

func TestAnswerBeforeTheEndOfTheBodyEnds(t *testing.T) {
	w := newWorld(t)
	w.direct = true
	w.speech()
	w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = w.Write([]byte("too large"))
	})
	got := answerOf(t, w.connect(form)) // which sends no more, and keeps the connection
	assert.Equal(t, http.StatusRequestEntityTooLarge, got.status)
	assert.Equal(t, "too large", got.body)
	w.awaitHeld(0)
}

func TestBodyThatDoesNotComeIsRefusedAndHasNoPlace(t *testing.T) {
	w := newWorldWithin(t, 20*time.Millisecond)
	w.model(nil)
	got := answerOf(t, w.connect("POST /v1/chat/completions HTTP/1.1\nHost: h\nContent-Type: application/json\nContent-Length: 1000\n\n"+`{"model": "llama", `))
	assert.Equal(t, http.StatusRequestTimeout, got.status)
	assert.Contains(t, got.body, "the body did not come within 20ms")
	assert.NotContains(t, w.scrape(), "hotseat_frontdoor_hold_duration_seconds_count{")
	assert.Empty(t, w.own.All())
}

func TestRequestThatFailsKeepsItsPlace(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	const n = 3
	got := make(chan answer)
	for i := range n {
		body := fmt.Sprintf(`{"model": "llama", "prompt": "%d"}`, i)
		go func() { got <- w.askWithin(t.Context(), "/v1/completions", body) }()
		w.awaitHeld(i + 1)
	}
	w.pod("gpu", nil)
	for !strings.Contains(w.scrape(), `hotseat_frontdoor_retries_total{model="llama",namespace="team"} 1`) {
		<-w.held
	}
	w.awaitHeld(n)
	w.pod("gpu", answers("a"))
	for range n {
		assert.Equal(t, http.StatusOK, (<-got).status)
	}
	var order []string
	for _, body := range w.sent[1:] { // the first one went to the Pod that refuses
		order = append(order, body[len(body)-3:len(body)-2])
	}
	assert.Equal(t, []string{"0", "1", "2"}, order)
}

// late is a transport that fails, and says only later that it has written the request.
type late struct {
	wrote chan func()
	then  http.RoundTripper
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case l.wrote <- func() { httptrace.ContextClientTrace(r.Context()).WroteRequest(httptrace.WroteRequestInfo{}) }:
		return nil, errors.New("reset")
	default:
		return l.then.RoundTrip(r)
	}
}

func TestLateNewsOfAnAttemptTakesNoPlaceAway(t *testing.T) {
	w := newWorld(t)
	w.model(func(m *v1alpha1.Model) { m.Spec.Hold = &v1alpha1.ModelHold{TimeoutSeconds: new(int32(3))} })
	l := &late{wrote: make(chan func(), 1), then: w.transport.RoundTripper}
	w.transport.RoundTripper = l
	w.pod("gpu", answers("fails"))
	got := make(chan answer)
	go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	wrote := <-l.wrote
	l.wrote <- nil // no more
	w.awaitHeld(1)
	wrote()
	w.pod("gpu", answers("good"))
	a := <-got
	assert.Equal(t, http.StatusOK, a.status, a.body)
}

func TestModelThatIsDeletedHoldsNobody(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	got := make(chan answer)
	for range 2 {
		go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	}
	w.awaitHeld(2)
	w.dir.DeleteModel(llama)
	for range 2 {
		a := <-got
		assert.Equal(t, http.StatusNotFound, a.status)
		assert.Contains(t, a.body, `the model \"llama\" was deleted while the request waited`)
	}
	assert.NotContains(t, w.scrape(), `model="llama"`)
	assert.Empty(t, w.own.All())
}

// Its Pods drain meanwhile: what they have begun to answer goes on to its end.
func TestModelThatIsBeingDeletedTakesNoRequests(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	began, end := make(chan struct{}), make(chan struct{})
	pod := w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	stream, held := make(chan answer), make(chan answer)
	go func() { stream <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	<-began
	w.dir.DeletePod(types.NamespacedName{Namespace: namespace, Name: pod.Name})
	go func() { held <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
	w.awaitHeld(1)
	w.model(func(m *v1alpha1.Model) { m.DeletionTimestamp = new(metav1.Now()) })
	assert.Equal(t, http.StatusNotFound, (<-held).status)
	w.dir.SetPod(pod)
	a := w.ask("/v1/chat/completions", chat)
	assert.Equal(t, http.StatusNotFound, a.status)
	assert.Contains(t, a.body, `there is no model \"llama\"`)
	close(end)
	assert.Equal(t, "data: 1\n\ndata: 2\n\n", (<-stream).body)
}

func TestNoPodIsAskedForAnotherProtocol(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	w.pod("gpu", func(out http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Upgrade"))
		assert.Empty(t, r.Header.Get("Expect"))
		c, _, _ := http.NewResponseController(out).Hijack()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = c.Close()
	})
	w.model(func(m *v1alpha1.Model) { m.Spec.Hold = &v1alpha1.ModelHold{Max: new(int32(0))} }) // it does not wait for the Pod again
	got := w.ask("/v1/chat/completions", chat, "Connection", "Upgrade", "Upgrade", "x", "Expect", "100-continue")
	assert.Equal(t, http.StatusTooManyRequests, got.status, got.body)
	assert.Empty(t, w.own.Of(llama).InFlight)
}

// Each answer counts, also one that is cut.
func TestAnswersThatAreCutAreCounted(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	next := make(chan struct{})
	w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("data: 1\n\n"))
		_ = http.NewResponseController(w).Flush()
		if _, more := <-next; !more {
			panic(http.ErrAbortHandler)
		}
		for range 1 << 20 {
			if _, err := w.Write([]byte("data: 1\n\n")); err != nil {
				return
			}
		}
	})
	leaves, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(leaves, http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(chat))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	leave()
	next <- struct{}{}
	require.NoError(t, got.Body.Close())
	w.awaitCode("499")
	close(next)
	w.ask("/v1/chat/completions", chat)
	w.awaitCode("502")
}

// awaitCode waits until a request was counted with a code.
func (w *world) awaitCode(code string) {
	w.t.Helper()
	for !strings.Contains(w.scrape(), `requests_total{code="`+code+`",model="llama"`) {
		runtime.Gosched()
		require.NoError(w.t, w.t.Context().Err())
	}
}

func TestErrorAfterSignsThatBeganLateEndsTheStream(t *testing.T) {
	w := newWorld(t)
	w.model(nil)
	w.pod("gpu", nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(`{"model": "llama", "stream": true, "messages": []}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Hotseat-Progress", "comments")
	got, err := http.DefaultClient.Do(r) // the header comes with the first sign, after the Pod has refused
	require.NoError(t, err)
	w.pod("gpu", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": {"message": "no messages"}}`))
	})
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	assert.Equal(t, http.StatusOK, got.StatusCode)
	assert.True(t, strings.HasPrefix(string(text), ": "), string(text))
	assert.Contains(t, string(text), "\n\ndata: {\"error\":")
	assert.Contains(t, string(text), "no messages")
}

func TestModelThatCannotRunHoldsNoRequest(t *testing.T) {
	w := newWorld(t)
	stuck := func(reason string, of int64) func(*v1alpha1.Model) {
		return func(m *v1alpha1.Model) {
			m.Generation = 2
			m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: of}}
		}
	}
	got := make(chan answer)
	for held, condition := range []func(*v1alpha1.Model){nil, stuck(v1alpha1.ReasonNoEntryCanRun, 1), stuck(v1alpha1.ReasonInvalid, 2)} {
		w.model(condition) // new, edited since, and with an entry that can run
		go func() { got <- w.askWithin(t.Context(), "/v1/chat/completions", chat) }()
		w.awaitHeld(held + 1)
	}
	w.model(stuck(v1alpha1.ReasonNoEntryCanRun, 2))
	const why = `no entry of the model llama can run as it is written: kubectl describe mdl llama -n team says what to change`
	for range 3 {
		waited := <-got
		assert.Equal(t, http.StatusServiceUnavailable, waited.status)
		assert.Contains(t, waited.body, why)
	}
	refused := w.ask("/v1/chat/completions", chat)
	assert.Equal(t, http.StatusServiceUnavailable, refused.status)
	assert.Contains(t, refused.body, `"message":"`+why+`","param":null,"type":"server_error"}}`)
	assert.Zero(t, w.own.Of(llama).Total(), "it is no demand")

	w.pod("gpu", answers("a"))
	assert.Equal(t, http.StatusOK, w.ask("/v1/chat/completions", chat).status, "a replica of an earlier edition serves")
}
