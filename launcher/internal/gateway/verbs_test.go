package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeVerbs records its calls.
type fakeVerbs struct {
	mu     sync.Mutex
	calls  []string
	asleep bool
	fail   error
}

func (f *fakeVerbs) Sleep(_ context.Context, level int) error {
	return f.call(fmt.Sprintf("sleep %d", level), true)
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

func (f *fakeVerbs) IsSleeping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asleep
}

func TestTheLauncherAnswersTheSleepCallsInTheEnginesPlace(t *testing.T) {
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was reached") })
	fake, seen := &fakeVerbs{}, &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Verbs = fake; o.Observe = seen.observe })
	client := newClient(t)

	for _, query := range []string{"", "?level=1", "?level=2", "?level=1&mode=abort"} {
		got := post(t, client, p.url("/sleep"+query), "")
		require.Equal(t, http.StatusOK, got.status)
		require.Empty(t, got.body)
	}
	require.JSONEq(t, `{"is_sleeping":true}`, get(t, client, p.url("/is_sleeping")).body)
	require.Equal(t, http.StatusOK, post(t, client, p.url("/wake_up?tags=weights"), "").status)
	require.JSONEq(t, `{"is_sleeping":false}`, get(t, client, p.url("/is_sleeping")).body)
	require.Equal(t, []string{"sleep 1", "sleep 1", "sleep 2", "sleep 1", "wake"}, fake.calls)
	o := seen.nth(t, 1)
	require.Equal(t, Observation{Class: ClassVerb, Status: 200, Outcome: OutcomeAnswered, Duration: o.Duration}, o)

	requireError(t, post(t, client, p.url("/sleep?level=3"), ""), http.StatusBadRequest, "level must be 1 or 2")
	got := get(t, client, p.url("/sleep"))
	requireError(t, got, http.StatusMethodNotAllowed, "/sleep does not take GET")
	require.Equal(t, "POST", got.header.Get("Allow"))
	fake.fail = errors.New("the instance is starting")
	requireError(t, post(t, client, p.url("/wake_up"), ""), http.StatusInternalServerError, "the instance is starting")
}

func TestSleepCallsInDisguiseReachNobody(t *testing.T) {
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was reached") })
	fake := &fakeVerbs{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Verbs = fake })
	for _, target := range disguises("/sleep") {
		if target != "" {
			got := sendRaw(t, p.address(), "POST "+target+" HTTP/1.1", "Host: x", "Content-Length: 0")
			require.Contains(t, got, "HTTP/1.1 40", target)
		}
	}
	require.Empty(t, fake.calls)
}
