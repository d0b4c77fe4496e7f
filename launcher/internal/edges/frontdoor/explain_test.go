package frontdoor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEachFailureHasItsStatus(t *testing.T) {
	f, _ := newDoor(t, catalogueText)
	failed := func(code string, retry time.Duration) error {
		return &scheduler.NotBroughtInError{Model: "a", Err: &launcher.Error{Code: code, Detail: "x"}, Retry: retry}
	}
	for name, c := range map[string]struct {
		err     error
		status  int
		retry   time.Duration
		outcome string
	}{
		"a full queue":                       {&scheduler.FullError{Model: "a", Waiting: 5}, 429, unknownWait, outcomeFull},
		"a wait that was too long":           {errWaitedTooLong, 503, unknownWait, outcomeTimeout},
		"an engine that failed":              {failed(launcherapi.CodeEngineFailed, 9*time.Second), 502, 9 * time.Second, outcomeFailed},
		"an engine that was too late":        {failed(launcherapi.CodeEngineTimeout, 0), 502, unknownWait, outcomeFailed},
		"arguments that the engine refuses":  {failed(launcherapi.CodeInvalid, 0), 502, unknownWait, outcomeFailed},
		"a lack of memory":                   {failed(launcherapi.CodeDoesNotFit, 0), 503, unknownWait, outcomeFailed},
		"a launcher that closes":             {failed(launcherapi.CodeUnavailable, 0), 503, unknownWait, outcomeFailed},
		"a model that was removed meanwhile": {failed(launcherapi.CodeNotFound, 0), 404, 0, outcomeFailed},
		"a request that is wrong":            {&inference.Error{Status: 400, Message: "x"}, 400, 0, outcomeInvalid},
		"a model that is not there":          {&inference.Error{Status: 404, Message: "x", Code: inference.CodeModelNotFound}, 404, 0, outcomeUnknown},
		"an engine's error in a stream":      {&inference.Error{Status: 500, Message: "x"}, 500, 0, outcomeFailed},
	} {
		got := f.explain("a", c.err)
		assert.Equal(t, c.status, got.Status, name)
		assert.Equal(t, c.retry, got.RetryAfter, name)
		assert.NotEmpty(t, got.Message, name)
		assert.Equal(t, c.outcome, outcomeOf(c.err), name)
	}
	assert.Equal(t, outcomeAnswered, outcomeOf(nil))
}

func TestRetryAfterIsThatOfTheTransitionThatIsNext(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	f.fleet.past.Observe("a", inference.Start, 40*time.Second)
	f.fleet.past.Observe("a", inference.Wake, 3*time.Second)
	assert.Equal(t, 40*time.Second, f.retryAfter("a"))
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Sleeping)}
	assert.Equal(t, 3*time.Second, f.retryAfter("a"))
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Starting)}
	assert.Equal(t, 40*time.Second, f.retryAfter("a"))
	assert.Equal(t, unknownWait, f.retryAfter("b"))
}
