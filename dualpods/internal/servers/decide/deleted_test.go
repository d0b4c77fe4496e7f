package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestDeletedRequesterIsLookedAtWhenItsDelayEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Observation)
		after  time.Duration
	}{
		"its preStop hook may run":                       {func(*Observation) {}, endPause},
		"two seconds of its delay are left":              {func(o *Observation) { toldToEnd(o, 2*time.Second) }, 2 * time.Second},
		"its delay is longer than its grace":             {func(o *Observation) { toldToEnd(o, time.Hour) }, 28 * time.Second},
		"its program tells nonsense":                     {func(o *Observation) { o.SPI.Proxy.ShutdownDelayMS = 1 << 62 }, 28 * time.Second},
		"the kubelet ends it":                            {func(o *Observation) { endedByTheKubelet(o); toldToEnd(o, 2*time.Second) }, 2 * time.Second},
		"its deadline has passed, its preStop hook runs": {func(o *Observation) { endedByTheKubelet(o); endingNow(o) }, endPause},
		"the kubelet ends it, and its program tells nonsense": {func(o *Observation) {
			endedByTheKubelet(o)
			o.SPI.Proxy.Terminating, o.SPI.Proxy.ShutdownDelayMS = true, 1<<62
		}, requesterapi.MaxDrain},
		"its grace ends soon, its program is mum": {func(o *Observation) { o.Requester.GraceEnds = now.Add(KillMargin + time.Millisecond) }, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			step := Decide(but(servedOne(), func(o *Observation) { deletedNow(o); c.change(o) }))
			assert.Equal(t, "leaving, still serving", step.Rule)
			assert.Equal(t, c.after, step.After)
		})
	}
}

func TestDrainOfADeletedRequesterHasTheRestOfItsGrace(t *testing.T) {
	const usual = 10 * time.Second
	for name, c := range map[string]struct {
		o    Observation
		want time.Duration
	}{
		"it is not deleted":                  {servedOne(), usual},
		"it has 30 s of its grace":           {but(servedOne(), deletedNow), 28 * time.Second},
		"it has hours of its grace":          {but(servedOne(), func(o *Observation) { deletedNow(o); o.Requester.GraceEnds = now.Add(9 * time.Hour) }), requesterapi.MaxDrain},
		"its grace ends soon":                {but(servedOne(), func(o *Observation) { deletedNow(o); o.Requester.GraceEnds = now.Add(5 * time.Second) }), usual},
		"its instance has ended":             {but(servedOne(), func(o *Observation) { deletedNow(o); o.Instance.State = "failed" }), usual},
		"its launcher's container has ended": {but(servedOne(), func(o *Observation) { deletedNow(o); o.Launcher.Ended = true }), 0},
		"its launcher is gone":               {but(servedOne(), func(o *Observation) { deletedNow(o); o.Launcher = nil }), 0},
		"its record is gone":                 {but(servedOne(), func(o *Observation) { deletedNow(o); o.Record = nil }), 0},
		"the kubelet ends it":                {but(servedOne(), func(o *Observation) { toldToEnd(o, 0); o.Requester.Grace = time.Minute }), time.Minute},
		"the kubelet ends it, and soon":      {but(servedOne(), func(o *Observation) { toldToEnd(o, 0); o.Requester.Grace = time.Second }), usual},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.o.Drain(usual)) })
	}
}

// endedByTheKubelet has the kubelet end a requester that nobody deleted, and that nothing
// shows any more.
func endedByTheKubelet(o *Observation) {
	o.Requester.Deleting, o.Requester.GraceEnds, o.Requester.Shown = false, time.Time{}, false
}

// The Pod goes on whose container the kubelet restarts after a failed liveness probe.
func TestEndingRequesterIsToldWhatEnds(t *testing.T) {
	for want, change := range map[string]func(*Observation){
		"its containers have ended":   func(o *Observation) { o.Requester.Finished = true },
		"its node node-1 is gone":     func(o *Observation) { o.Node.Name, o.Node.Gone = "node-1", true },
		"the kubelet ends it":         func(o *Observation) { endingNow(o); toldToEnd(o, time.Second) },
		"its program was told to end": func(o *Observation) { toldToEnd(o, time.Second) },
	} {
		step := Decide(but(servedOne(), change))
		assert.Equal(t, "ended, shown", step.Rule)
		assert.Equal(t, want, step.Why)
	}
}
