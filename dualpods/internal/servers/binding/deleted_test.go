package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestDeletedRequesterIsLookedAtWhenItsDelayEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Observation)
		after  time.Duration
	}{
		"its preStop hook may run":                {func(*Observation) {}, endPause},
		"two seconds of its delay are left":       {func(o *Observation) { toldToEnd(o, 2*time.Second) }, 2 * time.Second},
		"its delay is longer than its grace":      {func(o *Observation) { toldToEnd(o, time.Hour) }, 28 * time.Second},
		"its program tells nonsense":              {func(o *Observation) { o.SPI.Proxy.ShutdownDelayMS = 1 << 62 }, 28 * time.Second},
		"its grace ends soon, its program is mum": {func(o *Observation) { o.Requester.GraceEnds = now.Add(killMargin + time.Millisecond) }, time.Millisecond},
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
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.o.drain(usual)) })
	}
}

func TestGraceEndsAtTheDeletionTimestamp(t *testing.T) {
	assert.Zero(t, graceEnds(&corev1.Pod{}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
	assert.Equal(t, now, graceEnds(pod))
}
