package schedules

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Draws are numbers that follow from a seed, each kind of them in an order of its own:
// taking an event out of a script does not change the numbers of other kinds.
type Draws struct {
	Seed   uint64
	counts map[string]uint64
}

// Draw is the next number of a kind.
func (d *Draws) Draw(kind string, below uint64) uint64 {
	if d.counts == nil {
		d.counts = map[string]uint64{}
	}
	n := d.counts[kind]
	d.counts[kind]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d", d.Seed, kind, n)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x % below
}

// Between is the next time of a kind.
func (d *Draws) Between(kind string, from, to time.Duration) time.Duration {
	return from + time.Duration(d.Draw(kind, uint64(to-from)))
}

// Chance is true as often as percent says.
func (d *Draws) Chance(kind string, percent uint64) bool { return d.Draw(kind, 100) < percent }
