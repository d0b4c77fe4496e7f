package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// seated has an entry take seats.
func seated(e *Entry) { e.Seated = true }

// noSeat has it have waited for a seat for so long.
func noSeat(ago time.Duration) func(*Entry) {
	return func(e *Entry) { e.NoSeat = &Failure{ReasonUnschedulable, "all are taken", now.Add(-ago)} }
}

func TestModelWithoutRequestsAsksForNoSeatAgain(t *testing.T) {
	was := func(of *Model) *Model { // it had a request a moment ago
		of.Demand.Now, of.Demand.Mean, of.Demand.Peak = 0, 0.5, 1
		return of
	}
	asked := func(of *Model) (Row, int) { d := Decide(of).Entries[0]; return d.Row, d.Asked.Replicas }
	row, n := asked(was(model(0, entry("a", seated, awaits(1)))))
	assert.Equal(t, []any{RowLess, 0}, []any{row, n}, "another Model has its seat")
	_, n = asked(was(model(0, entry("a", seated, awaits(1), bounds(1, 0)))))
	assert.Equal(t, 1, n, "the minimum stays")
	_, n = asked(model(1, entry("a", seated, awaits(1))))
	assert.Equal(t, 1, n, "a request waits")
	_, n = asked(was(model(0, entry("a", seated, serves(1)))))
	assert.Equal(t, 1, n, "it has its seat")
	_, n = asked(was(model(0, entry("a", awaits(1)))))
	assert.Equal(t, 1, n, "Pods of its own are not taken by others")
	_, n = asked(external(1, entry("a", seated, awaits(1))))
	assert.Equal(t, 1, n, "somebody else says how many there are")
}

func TestEntryThatGetsNoSeatLeadsToTheNext(t *testing.T) {
	d := Decide(model(1, entry("a", seated, awaits(1), noSeat(31*time.Second)), entry("b")))
	assert.Equal(t, []int{0, 1}, []int{d.Entries[0].Asked.Replicas, d.Entries[1].Asked.Replicas})
	assert.Equal(t, ReasonUnschedulable, d.Entries[0].Record.LastFailure.Reason)
	assert.Contains(t, d.Entries[0].Record.LastFailure.Message, "there has been no seat for 30s: all are taken")

	d = Decide(model(1, entry("a", seated, awaits(1), noSeat(29*time.Second)), entry("b")))
	assert.Equal(t, []int{1, 0}, []int{d.Entries[0].Asked.Replicas, d.Entries[1].Asked.Replicas})
	assert.Equal(t, time.Second, d.Again)
}
