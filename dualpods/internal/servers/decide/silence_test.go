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
