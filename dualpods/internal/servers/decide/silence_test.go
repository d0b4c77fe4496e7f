package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAProgramOnANodeWhoseClockIsAheadIsNotAskedAgainAndAgain(t *testing.T) {
	ahead := func(o *Observation) { o.Requester.Started = now.Add(10 * time.Minute) }
	silent := but(fresh(), func(o *Observation) { ahead(o); o.SPI, o.Requester.Silent = nil, now.Add(-time.Minute) })
	assert.Equal(t, 5*time.Second, Decide(silent).After)
	silent.Requester.Silent = now.Add(-time.Second)
	assert.Equal(t, 250*time.Millisecond, Decide(silent).After)
	assert.GreaterOrEqual(t, Decide(but(fresh(), func(o *Observation) { ahead(o); o.SPI.Wrong = "no driver" })).After, 250*time.Millisecond)
}

func TestServedRequesterThatTheKubeletFoundUnreadyIsAskedAgain(t *testing.T) {
	assert.Zero(t, Decide(servedOne()).After)
	for lasted, after := range map[time.Duration]time.Duration{-time.Minute: time.Second, time.Second: time.Second, time.Minute: 15 * time.Second, 24 * time.Hour: 5 * time.Minute} {
		step := Decide(but(servedOne(), func(o *Observation) { o.Requester.FoundUnready = now.Add(-lasted) }))
		assert.Equal(t, Step{Do: Nothing, Why: "served", After: after}, step, lasted)
	}
}
