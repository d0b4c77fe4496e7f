package seats

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// pool is one of as many seats as it is given.
func pool(claims []Claim, seats ...Seat) *Pool {
	for i := range claims {
		c := &claims[i]
		c.Hash, c.Weight = "h", max(c.Weight, 100)
	}
	return &Pool{Now: now, Replicas: len(seats), MinResidency: 10 * time.Second, Drain: 30 * time.Second, Known: true, Seats: seats, Claims: claims}
}

// empty is a seat without a model.
func empty(name string, asleep ...string) Seat {
	return Seat{Name: name, Usable: true, Asleep: asleep, Sleepers: len(asleep)}
}

// taken is a seat whose model has been ready for so long.
func taken(name, claim string, inFlight int, ago time.Duration, asleep ...string) Seat {
	return Seat{Name: name, Usable: true, Claim: claim, Hash: "h", Ready: true, Serving: true, ReadySince: now.Add(-ago), InFlight: inFlight, Asleep: asleep, Sleepers: len(asleep)}
}

func with[V any](of V, change func(*V)) V {
	change(&of)
	return of
}

// leaving has a seat have left its model so long ago.
func leaving(ago time.Duration) func(*Seat) {
	return func(s *Seat) { s.Serving, s.Leaves = false, now.Add(-ago) }
}

// asks is an entry that asks for seats, and whose Model has requests, or was used so long ago.
func asks(name string, wants, requests int, ago time.Duration) Claim {
	return Claim{Name: name, Wants: wants, Requests: requests, LastUsed: now.Add(-ago), WaitsFrom: now.Add(-ago)}
}

const minute = time.Minute

// examples are pools, and what is done about them, as steps "do seat claim", sorted by seat.
var examples = map[string]struct {
	row  Row
	pool *Pool
	want string
}{
	"an entry that asks for fewer gives back the seat that was chosen": {RowNotWanted, pool([]Claim{asks("a", 1, 1, 0)}, taken("1", "a", 1, minute), with(taken("2", "a", 0, minute), func(s *Seat) { s.Goes, s.Serving = true, false })), "release 2"},
	"one whose requests go on drains":                                  {RowNotWanted, pool([]Claim{asks("a", 0, 1, 0)}, taken("1", "a", 1, minute)), "drain 1"},
	"one that drains goes on to":                                       {"", pool([]Claim{asks("a", 0, 1, 0)}, with(taken("1", "a", 1, minute), leaving(29*time.Second))), ""},
	"its requests are not waited for longer than the bound":            {RowNotWanted, pool([]Claim{asks("a", 0, 1, 0)}, with(taken("1", "a", 1, minute), leaving(30*time.Second))), "release 1"},
	"the entry of a seat is gone":                                      {RowNotWanted, pool(nil, taken("1", "a", 0, minute)), "drain 1"},
	"a seat that is given back drains":                                 {RowNotWanted, pool([]Claim{asks("b", 1, 1, 0)}, taken("1", "a", 0, minute)), "drain 1"},

	"an edited entry gets its model anew, after the drain": {RowEdited, pool([]Claim{asks("a", 1, 0, 0)}, with(taken("1", "a", 0, minute), func(s *Seat) { s.Hash = "old" })), "drain 1"},
	"one with requests drains first":                       {RowEdited, pool([]Claim{asks("a", 1, 1, 0)}, with(taken("1", "a", 1, minute), func(s *Seat) { s.Hash = "old" })), "drain 1"},
	"and gets it once they have ended":                     {RowFree, pool([]Claim{asks("a", 1, 1, 0)}, with(taken("1", "a", 0, minute), func(s *Seat) { s.Hash = "old"; leaving(time.Second)(s) })), "assign 1 a"},
	"of two seats one at a time":                           {RowEdited, pool([]Claim{asks("a", 2, 1, 0)}, with(taken("1", "a", 0, minute), func(s *Seat) { s.Hash = "old" }), with(taken("2", "a", 1, minute), func(s *Seat) { s.Hash = "old" })), "drain 1"},
	"the other one waits until the first one is ready":     {"", pool([]Claim{asks("a", 2, 1, 0)}, with(taken("1", "a", 0, minute), func(s *Seat) { s.Ready = false }), with(taken("2", "a", 1, minute), func(s *Seat) { s.Hash = "old" })), ""},

	"a model goes where it sleeps":                          {RowAsleep, pool([]Claim{asks("a", 1, 1, 0)}, empty("1"), empty("2", "a")), "assign 2 a"},
	"also to a seat of an idle Model":                       {RowAsleep, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, 0)}, empty("1"), taken("2", "b", 0, minute, "a")), "drain 2"},
	"but not to one of a Model with requests":               {RowFree, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0)}, empty("1"), taken("2", "b", 1, minute, "a")), "assign 1 a"},
	"else a free seat, behind which the least sleeps":       {RowFree, pool([]Claim{asks("a", 1, 1, 0)}, empty("1", "b"), empty("2")), "assign 2 a"},
	"a seat whose Pod does not run is not free":             {"", pool([]Claim{asks("a", 1, 1, 0)}, with(empty("1"), func(s *Seat) { s.Usable = false })), ""},
	"a Model without requests gets none":                    {"", pool([]Claim{asks("a", 1, 0, 0)}, empty("1", "a")), ""},
	"unless its minimum says so":                            {RowAsleep, pool([]Claim{with(asks("a", 1, 0, 0), func(c *Claim) { c.Min = 1 })}, empty("1", "a")), "assign 1 a"},
	"or /scale does":                                        {RowFree, pool([]Claim{with(asks("a", 1, 0, 0), func(c *Claim) { c.Firm = true })}, empty("1")), "assign 1 a"},
	"two that wait get two seats, each where it sleeps":     {RowAsleep, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0)}, empty("1", "b"), empty("2", "a")), "assign 1 b, assign 2 a"},
	"an entry with a seat comes after one without":          {RowFree, pool([]Claim{asks("a", 2, 9, minute), asks("b", 1, 1, 0)}, taken("1", "a", 9, minute), empty("2")), "assign 2 b"},
	"who has waited longer comes first":                     {RowFree, pool([]Claim{asks("a", 1, 1, time.Second), asks("b", 1, 1, minute)}, empty("1")), "assign 1 b"},
	"who lacks its minimum comes before":                    {RowFree, pool([]Claim{with(asks("a", 2, 0, 0), func(c *Claim) { c.Min = 2 }), asks("b", 1, 1, minute)}, taken("1", "a", 0, minute), empty("2")), "assign 2 a"},
	"the Model that was used the longest ago loses":         {RowIdle, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, time.Second), asks("c", 1, 0, minute)}, taken("1", "b", 0, minute), taken("2", "c", 0, minute)), "drain 2"},
	"once front doors have seen that, the seat goes":        {RowAsleep, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, minute)}, empty("1"), with(taken("2", "b", 0, minute, "a"), leaving(Settle))), "assign 2 a"},
	"and not before, though another one is free":            {"", pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, minute)}, empty("1"), with(taken("2", "b", 0, minute, "a"), leaving(Settle-1))), ""},
	"a request that came meanwhile is waited for":           {"", pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0)}, with(taken("2", "b", 1, minute), leaving(Settle))), ""},
	"a seat that front doors do not know goes at once":      {RowIdle, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, minute)}, with(taken("2", "b", 0, minute), func(s *Seat) { s.Serving = false })), "assign 2 a"},
	"its own Model gets it back if nobody else waits":       {RowKept, pool([]Claim{asks("b", 1, 1, 0)}, with(taken("2", "b", 0, minute), leaving(0))), "stay 2"},
	"but not what is its minimum":                           {RowIdle, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, time.Second), with(asks("c", 1, 0, minute), func(c *Claim) { c.Min = 1 })}, taken("1", "b", 0, minute), taken("2", "c", 0, minute)), "drain 1"},
	"nor what /scale asks for":                              {"", pool([]Claim{asks("a", 1, 1, 0), with(asks("b", 1, 0, minute), func(c *Claim) { c.Firm = true; c.Min = 1 })}, taken("1", "b", 0, minute)), ""},
	"nor before the front doors are heard":                  {"", with(*pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 0, minute)}, taken("1", "b", 0, minute)), func(p *Pool) { p.Known = false }).ptr(), ""},
	"a free seat is given before they are":                  {RowFree, with(*pool([]Claim{asks("a", 1, 1, 0)}, empty("1")), func(p *Pool) { p.Known = false }).ptr(), "assign 1 a"},
	"a busy Model loses its seat after its time":            {RowBusy, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0), asks("c", 1, 1, 0)}, taken("1", "b", 1, 11*time.Second), taken("2", "c", 1, minute)), "drain 2"},
	"and not before":                                        {"", pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0)}, taken("1", "b", 1, 9*time.Second)), ""},
	"nor to one that has lost a seat just now":              {"", pool([]Claim{with(asks("a", 1, 1, 0), func(c *Claim) { c.LostAt = now.Add(-9 * time.Second) }), asks("b", 1, 1, 0)}, taken("1", "b", 1, minute)), ""},
	"nor while it starts":                                   {"", pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0)}, with(taken("1", "b", 0, minute), func(s *Seat) { s.Ready = false })), ""},
	"nor if it is its minimum":                              {"", pool([]Claim{asks("a", 1, 1, 0), with(asks("b", 1, 1, 0), func(c *Claim) { c.Min = 1 })}, taken("1", "b", 1, minute)), ""},
	"one drain for one that waits":                          {"", pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 1, 0), asks("c", 1, 1, 0)}, with(taken("1", "b", 1, minute), leaving(time.Second)), with(taken("2", "c", 1, minute), leaving(time.Second))), ""},
	"of Models with the same time the least demand goes":    {RowBusy, pool([]Claim{asks("a", 1, 1, 0), asks("b", 1, 9, 0), asks("c", 1, 1, 0)}, taken("1", "b", 9, minute), taken("2", "c", 1, minute)), "drain 2"},
	"an entry with seats takes from one with two more":      {RowBusy, pool([]Claim{asks("a", 9, 9, 0), asks("b", 9, 9, 0)}, taken("1", "a", 1, minute), taken("2", "b", 1, minute), taken("3", "b", 1, minute), taken("4", "b", 1, minute)), "drain 2"},
	"and not from one with one more":                        {"", pool([]Claim{asks("a", 9, 9, 0), asks("b", 9, 9, 0)}, taken("1", "a", 1, minute), taken("2", "b", 1, minute), taken("3", "b", 1, minute)), ""},
	"what has drained goes to who waits":                    {RowFree, pool([]Claim{asks("a", 1, 1, minute), asks("b", 1, 1, 0)}, with(taken("1", "b", 0, minute), leaving(time.Second))), "assign 1 a"},
	"a seat that drains for nobody takes requests again":    {RowKept, pool([]Claim{asks("b", 1, 1, 0)}, with(taken("1", "b", 1, minute), leaving(time.Second))), "stay 1"},
	"also if its Model has no request any more":             {RowKept, pool([]Claim{asks("b", 1, 0, 0)}, with(taken("1", "b", 0, minute), leaving(time.Second))), "stay 1"},
	"not the one that another one waits for":                {"", pool([]Claim{asks("a", 1, 1, minute), asks("b", 1, 1, 0)}, with(taken("1", "b", 1, minute), leaving(time.Second))), ""},
	"a pool that shrinks loses a seat without a model":      {RowSurplus, with(*pool([]Claim{asks("a", 1, 0, minute)}, taken("1", "a", 0, minute), empty("2")), func(p *Pool) { p.Replicas = 1 }).ptr(), "delete 2"},
	"then that of the Model that was used the longest ago":  {RowSurplus, with(*pool([]Claim{asks("a", 1, 0, minute), asks("b", 1, 0, 0)}, taken("1", "a", 0, minute), taken("2", "b", 0, minute)), func(p *Pool) { p.Replicas = 1 }).ptr(), "delete 1"},
	"and none whose Model has requests":                     {"", with(*pool([]Claim{asks("a", 1, 1, 0)}, taken("1", "a", 0, minute)), func(p *Pool) { p.Replicas = 0 }).ptr(), ""},
	"an edited template replaces one seat without requests": {RowTemplate, pool([]Claim{asks("a", 1, 0, minute)}, with(taken("1", "a", 0, minute), outdated), with(empty("2"), outdated)), "delete 1"},
	"and the next one once the new one runs":                {"", pool(nil, with(empty("1"), outdated), with(empty("2"), func(s *Seat) { s.Usable = false })), ""},
	"one that cannot run is replaced":                       {RowTemplate, pool(nil, with(empty("1"), func(s *Seat) { s.Usable = false; outdated(s) })), "delete 1"},
	"missing seats are made":                                {RowTooFew, with(*pool(nil, empty("1")), func(p *Pool) { p.Replicas = 3 }).ptr(), "create 2"},
}

func outdated(s *Seat) { s.Outdated = true }

func (p Pool) ptr() *Pool { return &p }

// text returns the steps of a decision.
func text(d *Decision) string {
	var all []string
	for _, s := range d.Steps {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Do, s.Seat, s.Claim)))
	}
	if d.Create > 0 {
		all = append(all, fmt.Sprintf("create %d", d.Create))
	}
	return strings.Join(all, ", ")
}

func TestSeatsAreChosenByTheTable(t *testing.T) {
	seen := map[Row]bool{RowTooFew: true}
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			d := Decide(e.pool)
			assert.Equal(t, e.want, text(d))
			for _, s := range d.Steps {
				assert.NotEmpty(t, s.Why)
				assert.NotContains(t, s.Why, "%!")
				seen[s.Row] = true
			}
			if len(d.Steps) == 1 {
				assert.Equal(t, e.row, d.Steps[0].Row)
			}
		})
	}
	for _, row := range Rows {
		assert.True(t, seen[row], row)
	}
}

func TestDecisionIsMadeAgainWhenItsTimesAreOver(t *testing.T) {
	assert.Equal(t, time.Second, Decide(examples["and not before"].pool).Again, "the seat may be taken then")
	assert.Equal(t, time.Second, Decide(examples["one that drains goes on to"].pool).Again, "its requests are not waited for then")
	assert.Zero(t, Decide(examples["a Model without requests gets none"].pool).Again)
}

func TestDecisionNamesWhoWaits(t *testing.T) {
	assert.Equal(t, []string{"a"}, Decide(examples["and not before"].pool).Waiting)
	assert.Empty(t, Decide(examples["a model goes where it sleeps"].pool).Waiting)
}

func TestPageOfSeatsHasEachRow(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/seats.md")
	require.NoError(t, err)
	last := 0
	for _, row := range Rows {
		at := strings.Index(string(text), "\n| "+string(row)+" | ")
		assert.Greater(t, at, last, "%s stands in its place", row)
		last = at
	}
	assert.Len(t, Rows, strings.Count(string(text), "\n| ")-1, "the page has no other row than these and its heading")
}
