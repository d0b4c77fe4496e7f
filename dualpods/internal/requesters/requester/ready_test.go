package requester

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// probe asks as a kubelet does, with a wait that is over only if nothing else is.
func (s *running) probe() <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- s.call(http.MethodGet, s.probes+requesterapi.PathReady+"?wait=1m", "") }()
	return answers
}

// heldBack says that a probe is not answered yet.
func (s *running) heldBack(answers <-chan answer) {
	s.t.Helper()
	select {
	case got := <-answers:
		require.Fail(s.t, "the probe was answered at once", got.body)
	case <-time.After(20 * time.Millisecond): // an answer that comes later is seen by what follows
	}
}

func TestAProbeThatWaitsIsAnsweredWhenTheRequesterBecomesReady(t *testing.T) {
	s := start(t)
	held := s.probe()
	s.bind("one", listen(t, echo))
	s.heldBack(held)
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	assert.Equal(t, 200, (<-held).status)

	require.Equal(t, 200, s.post(requesterapi.PathBecomeUnready, "").status)
	assert.Equal(t, 503, (<-s.probe()).status, "those who took it for ready are told at once")
	held = s.probe()
	s.heldBack(held)
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	assert.Equal(t, 200, (<-held).status)
}

func TestAProbeThatWaitsIsAnsweredWhenTheRequesterBecomesUnready(t *testing.T) {
	s := start(t)
	s.r.readyHold = time.Minute
	s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	assert.Equal(t, 200, (<-s.probe()).status, "those who do not know are told at once")
	held := s.probe()
	s.heldBack(held)
	require.Equal(t, 200, s.post(requesterapi.PathBecomeUnready, "").status)
	assert.Equal(t, 503, (<-held).status)
}

func TestAProbeThatKnowsTheRequesterToBeReadyIsAnsweredAllTheSame(t *testing.T) {
	s := start(t)
	s.r.readyHold = time.Millisecond
	s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	for range 3 {
		assert.Equal(t, 200, (<-s.probe()).status)
	}
}

func TestAProbeThatWaitsIsAnsweredWhenTheRequesterIsToldToEnd(t *testing.T) {
	s := start(t)
	s.bind("one", listen(t, echo))
	held := s.probe()
	s.heldBack(held)
	s.terminate()
	got := <-held
	assert.Equal(t, 503, got.status)
	assert.Equal(t, "not ready: terminating\n", got.body)
	assert.Equal(t, 503, (<-s.probe()).status)
	require.Equal(t, 200, s.delete("binding=one").status)
}

func TestAProbeIsHeldNoLongerThanItWaits(t *testing.T) {
	s := start(t)
	assert.Equal(t, 503, s.call(http.MethodGet, s.probes+requesterapi.PathReady+"?wait=10ms", "").status)
	for _, wrong := range []string{"soon", "-1s", "2m"} {
		requireProblem(t, s.call(http.MethodGet, s.probes+requesterapi.PathReady+"?wait="+wrong, ""), 400, requesterapi.CodeInvalid, "give a duration from 0s to 1m0s")
	}
}
