package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// fakeVerbs records its calls.
type fakeVerbs struct {
	mu     sync.Mutex
	calls  []string
	asleep bool
	fail   error
}

func (f *fakeVerbs) Sleep(_ context.Context, level int, wait bool) error {
	how := "cutting"
	if wait {
		how = "waiting"
	}
	return f.call(fmt.Sprintf("sleep %d %s", level, how), true)
}

func (f *fakeVerbs) Wake(context.Context) error { return f.call("wake", false) }

func (f *fakeVerbs) call(name string, asleep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
	if f.fail == nil {
		f.asleep = asleep
	}
	return f.fail
}

func (f *fakeVerbs) IsSleeping() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asleep, f.fail
}

func TestLauncherAnswersSleepCallsInsteadOfTheEngine(t *testing.T) {
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was reached") })
	fake, seen := &fakeVerbs{}, &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Verbs = fake; o.Observe = seen.observe })
	client := newClient(t)

	for _, query := range []string{"", "?level=1", "?level=2&mode=wait", "?mode=keep", "?level=1&mode=abort"} {
		got := post(t, client, p.url("/sleep"+query), "")
		require.Equal(t, http.StatusOK, got.status)
		require.Empty(t, got.body)
	}
	require.JSONEq(t, `{"is_sleeping":true}`, get(t, client, p.url("/is_sleeping")).body)
	require.Equal(t, http.StatusOK, post(t, client, p.url("/wake_up?tags=weights"), "").status)
	require.JSONEq(t, `{"is_sleeping":false}`, get(t, client, p.url("/is_sleeping")).body)
	require.Equal(t, []string{"sleep 1 cutting", "sleep 1 cutting", "sleep 2 waiting", "sleep 1 waiting", "sleep 1 cutting", "wake"}, fake.calls)
	o := seen.nth(t, 1)
	require.Equal(t, Observation{Class: ClassVerb, Status: 200, Outcome: OutcomeAnswered, Duration: o.Duration}, o)

	requireError(t, post(t, client, p.url("/sleep?level=3"), ""), http.StatusBadRequest, "level must be 1 or 2")
	requireError(t, post(t, client, p.url("/sleep?mode=bogus"), ""), http.StatusBadRequest, "mode must be abort, wait or keep")
	got := get(t, client, p.url("/sleep"))
	requireError(t, got, http.StatusMethodNotAllowed, "/sleep does not take GET")
	require.Equal(t, "POST", got.header.Get("Allow"))
}

func TestErrorCodeDecidesStatusOfVerbsAnswer(t *testing.T) {
	fake := &fakeVerbs{}
	p := newProxy(t, "127.0.0.1:1", func(o *Options) { o.Verbs = fake })
	client := newClient(t)
	for status, err := range map[int]error{
		http.StatusConflict:            launcher.Conflictf("instance a is starting"),
		http.StatusNotFound:            launcher.NotFound("a"),
		http.StatusBadGateway:          launcher.EngineFailedf("the engine died"),
		http.StatusGatewayTimeout:      launcher.EngineTimeoutf("the engine does not answer"),
		http.StatusServiceUnavailable:  launcher.Unavailablef("instance a is starting"),
		http.StatusInternalServerError: errors.New("something else"),
	} {
		fake.fail = err
		requireError(t, post(t, client, p.url("/sleep"), ""), status, err.Error())
		requireError(t, post(t, client, p.url("/wake_up"), ""), status, err.Error())
		requireError(t, get(t, client, p.url("/is_sleeping")), status, err.Error())
	}
	fake.fail = launcher.DoesNotFit(launcherapi.Fit{}, "no room on GPU 0")
	requireError(t, post(t, client, p.url("/wake_up"), ""), http.StatusConflict, "no room on GPU 0")
}

// slowVerbs never finish falling asleep.
type slowVerbs struct {
	fakeVerbs

	called chan struct{}
}

func (s *slowVerbs) Sleep(ctx context.Context, _ int, _ bool) error {
	close(s.called)
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestSleepCallGets504AfterSleepTimeout(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1", func(o *Options) {
		o.Verbs = &slowVerbs{called: make(chan struct{})}
		o.SleepTimeout = 50 * time.Millisecond
	})
	got := post(t, newClient(t), p.url("/sleep?mode=wait"), "")
	requireError(t, got, http.StatusGatewayTimeout, "still falling asleep")
	require.Equal(t, "5", got.header.Get("Retry-After"))
}

func TestCloseCutsVerbInProgress(t *testing.T) {
	seen, slow := &observer{}, &slowVerbs{called: make(chan struct{})}
	p := newProxy(t, "127.0.0.1:1", func(o *Options) { o.Verbs = slow; o.SleepTimeout = patience.Wait(); o.Observe = seen.observe })
	asked := goPost(t, newClient(t), p.url("/sleep"), "")
	receive(t, slow.called)
	require.ErrorContains(t, closeUnbounded(t, p), "closed 1 connections")
	receive(t, asked)
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
}

func TestCrossSiteRequestsDoNotReachTheVerbs(t *testing.T) {
	engine := newEngine(t, echo)
	fake := &fakeVerbs{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Verbs = fake })
	client := newClient(t)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"} {
		for _, path := range []string{"/sleep", "/wake_up"} {
			r := request(t.Context(), t, http.MethodPost, p.url(path), nil)
			r.Header.Set(header, value)
			requireError(t, do(client, r), http.StatusForbidden, "another site")
		}
	}
	for path, method := range map[string]string{"/sleep": http.MethodPost, "/wake_up": http.MethodPost, "/is_sleeping": http.MethodGet} {
		r := request(t.Context(), t, method, p.url(path), nil)
		r.Host = "rebound.example:8000"
		requireError(t, do(client, r), http.StatusForbidden, "rebound.example")
	}
	require.Empty(t, fake.calls)

	r := request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), strings.NewReader("x"))
	r.Header.Set("Origin", "https://elsewhere.example")
	r.Host = "models.example"
	require.Equal(t, "x", do(client, r).body, "inference is for whoever the engine lets in")
}

func TestDisguisedSleepCallsAreRefused(t *testing.T) {
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was reached") })
	fake := &fakeVerbs{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Verbs = fake })
	for _, target := range disguises("/sleep") {
		if target != "" {
			got := sendRaw(t, p.address(), "POST "+target+" HTTP/1.1", "Host: localhost", "Content-Length: 0")
			require.Contains(t, got, "HTTP/1.1 40", target)
		}
	}
	require.Empty(t, fake.calls)
}
