package inference

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func signs(path string, p Progress) (*Signs, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "id-1")
	return &Signs{Writer: w, Request: httptest.NewRequest(http.MethodPost, path, nil), Progress: p, Interval: 5 * time.Second, Model: "m"}, w
}

// wait waits for a while, as for a model that is awake after that time.
func wait(t *testing.T, s *Signs, d time.Duration) {
	t.Helper()
	ready := make(chan struct{})
	time.AfterFunc(d, func() { close(ready) })
	require.NoError(t, s.Wait(ready, func() string { return "waking,\n\n2 before it" }))
}

func TestStreamThatWaitsGetsASignInEachInterval(t *testing.T) {
	const chunk = `data: {"choices":[{"delta":{"reasoning_content":"waiting for m (5s): waking, 2 before it\n"},"finish_reason":null,"index":0}],"created":946684805,"id":"chatcmpl-id-1","model":"m","object":"chat.completion.chunk"}` + "\n\n"
	const comment = ": waiting for m (5s): waking, 2 before it\n\n"
	for name, tt := range map[string]struct {
		path  string
		asked Progress
		after time.Duration
		want  string
	}{
		"comments":                {"/v1/chat/completions", ProgressComments, 11 * time.Second, comment + ": waiting for m (10s): waking, 2 before it\n\n"},
		"reasoning of a chat":     {"/v1/chat/completions", ProgressReasoning, 6 * time.Second, chunk},
		"reasoning on other path": {"/v1/completions", ProgressReasoning, 6 * time.Second, comment},
		"none":                    {"/v1/chat/completions", ProgressNone, time.Hour, ""},
		"a short wait":            {"/v1/chat/completions", ProgressComments, 4 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := signs(tt.path, tt.asked)
				wait(t, s, tt.after)
				assert.Equal(t, tt.want, w.Body.String())
				assert.Equal(t, tt.want != "", s.Began())
				assert.Equal(t, tt.want != "", w.Flushed)
				if s.Began() {
					assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
				}
			})
		})
	}
}

func TestSignWithoutAReasonSaysHowLongAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := signs("/v1/completions", ProgressComments)
		ready := make(chan struct{})
		time.AfterFunc(6*time.Second, func() { close(ready) })
		require.NoError(t, s.Wait(ready, func() string { return "" }))
		assert.Equal(t, ": waiting for m (5s)\n\n", w.Body.String())
	})
}

func TestFailureAfterSignsEndsTheStreamWithAnErrorEvent(t *testing.T) {
	failure := &Error{Status: 502, Message: "it failed"}
	for name, tt := range map[string]struct {
		path  string
		after time.Duration
		code  int
		want  string
	}{
		"OpenAI":        {"/v1/completions", 6 * time.Second, 200, ": waiting for m (5s): waking, 2 before it\n\n" + `data: {"error":{"code":null,"message":"it failed","param":null,"type":"server_error"}}` + "\n\n"},
		"Anthropic":     {"/v1/messages", 6 * time.Second, 200, ": waiting for m (5s): waking, 2 before it\n\nevent: error\n" + `data: {"error":{"message":"it failed","type":"api_error"},"request_id":"id-1","type":"error"}` + "\n\n"},
		"before a sign": {"/v1/completions", time.Second, 502, `{"error":{"code":null,"message":"it failed","param":null,"type":"server_error"}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := signs(tt.path, ProgressComments)
				wait(t, s, tt.after)
				s.Fail(failure)
				assert.Equal(t, tt.code, w.Code)
				assert.Equal(t, tt.want, w.Body.String())
			})
		})
	}
}

func TestWaitsOfOneRequestAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := signs("/v1/completions", ProgressComments)
		wait(t, s, 4*time.Second)
		wait(t, s, 6*time.Second)
		assert.Equal(t, ": waiting for m (9s): waking, 2 before it\n\n", w.Body.String())
	})
}

func TestClientThatLeavesEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := signs("/v1/completions", ProgressNone)
		ctx, cancel := context.WithCancel(t.Context())
		s.Request = s.Request.WithContext(ctx)
		time.AfterFunc(time.Second, cancel)
		assert.ErrorIs(t, s.Wait(nil, nil), context.Canceled)
		assert.Empty(t, w.Body.String())
	})
}

// stalled is a connection whose client reads nothing.
type stalled struct {
	http.ResponseWriter
	deadline time.Time
}

func (s *stalled) SetWriteDeadline(at time.Time) error { s.deadline = at; return nil }
func (s *stalled) FlushError() error                   { return nil }
func (s *stalled) Write([]byte) (int, error) {
	<-time.After(time.Until(s.deadline))
	return 0, errors.New("too late")
}

func TestClientThatDoesNotReadEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := signs("/v1/completions", ProgressComments)
		s.Writer = &stalled{ResponseWriter: w}
		began := time.Now()
		assert.EqualError(t, s.Wait(nil, func() string { return "" }), "cannot write a sign of life: too late")
		assert.Equal(t, 10*time.Second, time.Since(began), "an interval before the sign, and one for it")
	})
}

func TestProgressIsAskedForByHeaderOrQuery(t *testing.T) {
	for _, tt := range []struct {
		path, header string
		want         Progress
		wrong        string
	}{
		{"/v1/completions", "", ProgressNone, ""},
		{"/v1/completions", "comments", ProgressComments, ""},
		{"/v1/completions?hotseat_progress=reasoning", "", ProgressReasoning, ""},
		{"/v1/completions?hotseat_progress=reasoning", "comments", ProgressComments, ""},
		{"/v1/completions", "yes", ProgressNone, `X-Hotseat-Progress must be comments or reasoning, not "yes"`},
		{"/v1/completions?hotseat_progress=1", "", ProgressNone, `hotseat_progress must be comments or reasoning, not "1"`},
	} {
		r := httptest.NewRequest(http.MethodPost, tt.path, nil)
		r.Header.Set("X-Hotseat-Progress", tt.header)
		got, err := ProgressOf(r)
		assert.Equal(t, tt.want, got)
		if tt.wrong != "" {
			assert.EqualError(t, err, tt.wrong)
		} else {
			assert.NoError(t, err)
		}
	}
}
