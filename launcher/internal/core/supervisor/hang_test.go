package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

func withHangs(o *Options) { o.Limits.Hang = 10 * time.Minute }

// quiet has the gate of "a" notice that its requests in flight get nothing.
func (r *rig) quiet() {
	r.t.Helper()
	gate := r.gates.gate("a")
	gate.inFlight = 3
	gate.setQuiet(10 * time.Minute)
	r.CheckQuiet("a")
	r.CheckQuiet("a") // one check at a time
}

func TestEngineThatAnswersNothingWhileAwakeIsEnded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.answers(noAnswer)
		r.quiet()
		began := time.Now()
		<-r.runner.tree("a").Done()
		assert.Equal(t, hangAnswerLimit, time.Since(began))
		synctest.Wait()
		view, err := r.Get("a")
		assert.NoError(t, err)
		assert.Equal(t, "failed", view.State)
		assert.Equal(t, "no_answers", view.Cause)
		assert.Equal(t, "answers /health and no request: 3 requests in flight have got nothing for 10m0s, and a short request got no answer within 1m0s; the launcher has ended it, and a swap to it starts it again", view.Reason)
		assert.Equal(t, []string{""}, r.engine.answers(nil), "it is asked once")
	}, withHangs)
}

func TestQuietEngineThatIsWellIsLeftAlone(t *testing.T) {
	refuses := func(context.Context) (engine.Answer, error) { return engine.Answer{}, errBroken }
	for name, c := range map[string]struct {
		probe     func(context.Context) (engine.Answer, error)
		busy      bool
		meanwhile func(r *rig)
	}{
		"it answers":                     {},
		"it refuses":                     {probe: refuses},
		"it works for others":            {probe: noAnswer, busy: true},
		"something comes back meanwhile": {probe: noAnswer, meanwhile: func(r *rig) { r.gates.gate("a").setQuiet(time.Second) }},
		"it has slept and woken":         {probe: noAnswer, meanwhile: func(r *rig) { r.asleep("a"); r.wakes("a") }},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				r.engine.answers(c.probe)
				r.engine.busy = c.busy
				r.quiet()
				time.Sleep(time.Second)
				if c.meanwhile != nil {
					c.meanwhile(r)
				}
				time.Sleep(time.Hour)
				assert.Equal(t, "awake", r.state("a"))
				r.under(func() { assert.False(t, r.instances["a"].hangChecked) })
			}, withHangs)
		})
	}
}

func TestSleepingInstanceIsNotCheckedForAHang(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.asleep("a")
		r.engine.answers(noAnswer)
		r.quiet()
		time.Sleep(time.Hour)
		assert.Equal(t, "sleeping", r.state("a"))
		assert.Empty(t, r.engine.answers(nil))
	}, withHangs)
}
