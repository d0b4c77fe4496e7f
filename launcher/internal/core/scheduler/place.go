package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// rank orders placements; the lowest is the best.
type rank int

const (
	free       rank = iota // there is room beside the models that are awake
	leaves                 // the models that are awake there may leave now
	later                  // its turn there will come
	blocked                // it comes in only if something else changes
	impossible             // no turn of the models helps
)

// placement is where a model could be awake.
type placement struct {
	gpus []string
	out  []string // models that leave
	rank rank

	row   string    // of those that are not for now, as what follows
	by    []*Model  // who is in the way
	gpu   string    // where
	until time.Time // when to look again; zero: only a change helps
	inUse bool      // the models that are awake there are in use

	idle  float64   // for how many of their returns those that leave were not used
	since time.Time // when the last of those that leave became awake
}

// lingers is how long a model still counts as in use after an answer, if a client of it has asked
// again within that time before: it would lose the model between its requests.
const lingers = time.Second

// contended is how soon after it left a sleeper is wanted again if it and the model in its place take
// turns all the time. It then moves to GPUs that are free.
const contended = time.Minute

// place returns the best placement of a model. A sleeper that is not bound to its GPUs may move: it
// is stopped first, and then starts elsewhere.
func (d *decider) place(m *Model) (best placement, moves bool) {
	bound := m.GPUs
	if m.State == launcher.Sleeping {
		bound = m.On
	}
	best = d.best(m, d.candidates(m, bound))
	if m.State != launcher.Sleeping || len(m.GPUs) > 0 {
		return best, false
	}
	isStuck := best.rank >= blocked && best.until.IsZero()
	isContended := best.inUse && d.Now.Sub(m.Since) < contended
	if !isStuck && !isContended {
		return best, false
	}
	if elsewhere := d.best(m, d.candidates(m, nil)); elsewhere.rank == free || isStuck && elsewhere.rank < blocked {
		return elsewhere, true
	}
	return best, false
}

// best returns the best placement of a model on one of these sets of GPUs.
func (d *decider) best(m *Model, candidates [][]string) placement {
	if len(candidates) == 0 {
		return placement{rank: impossible, row: rowTooFewGPUs}
	}
	best := d.look(m, candidates[0])
	for _, gpus := range candidates[1:] {
		if p := d.look(m, gpus); p.compare(best) < 0 {
			best = p
		}
	}
	return best
}

// compare returns a negative number if the first placement is the better one.
func (p placement) compare(other placement) int {
	undated := func(p placement) int {
		if p.until.IsZero() {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(p.rank, other.rank),
		cmp.Compare(undated(p), undated(other)), p.until.Compare(other.until),
		cmp.Compare(other.idle, p.idle), p.since.Compare(other.since),
	)
}

// candidates returns the sets of GPUs on which a model could be: those that it is bound to, or
// else a set that is built from each GPU on, by what is best next to it.
func (d *decider) candidates(m *Model, bound []string) [][]string {
	switch {
	case len(bound) > 0:
		return [][]string{bound}
	case m.Count == 0: // it runs on the processor
		return [][]string{nil}
	case m.Count > len(d.GPUs):
		return nil
	}
	alone := make([]placement, 0, len(d.GPUs))
	for _, g := range d.GPUs {
		alone = append(alone, d.look(m, []string{g.UUID}))
	}
	slices.SortStableFunc(alone, placement.compare)
	if m.Count == 1 {
		return [][]string{alone[0].gpus}
	}
	var all [][]string
	for _, p := range alone {
		set := append(slices.Clone(p.gpus), d.companions(p.gpus[0], alone)[:m.Count-1]...)
		slices.SortFunc(set, func(a, b string) int { return cmp.Compare(d.index(a), d.index(b)) })
		all = append(all, set)
	}
	return all
}

// companions returns the other GPUs: first those that a model on this GPU uses too, since they
// become free with it, then the rest from the best on.
func (d *decider) companions(uuid string, alone []placement) []string {
	var shared, rest []string
	for _, p := range alone {
		g := p.gpus[0]
		switch {
		case g == uuid:
		case slices.ContainsFunc(d.awake[uuid], func(m *Model) bool { return slices.Contains(m.On, g) }):
			shared = append(shared, g)
		default:
			rest = append(rest, g)
		}
	}
	return append(shared, rest...)
}

func (d *decider) index(uuid string) int {
	return slices.IndexFunc(d.GPUs, func(g GPU) bool { return g.UUID == uuid })
}

// look says whether a model can be awake on these GPUs, and who leaves for it.
func (d *decider) look(m *Model, gpus []string) placement {
	var occupants []*Model
	beside, changes := true, ""
	for _, uuid := range gpus {
		n := d.index(uuid)
		if n < 0 {
			return placement{gpus: gpus, rank: impossible, row: rowNoSuchGPU, gpu: uuid}
		}
		g := d.GPUs[n]
		if m.Bytes+g.ForeignBytes > g.TotalBytes {
			return placement{gpus: gpus, rank: impossible, row: rowNoMemory, gpu: uuid}
		}
		used := cmp.Or(m.Bytes, g.TotalBytes) + g.ForeignBytes + g.AsleepBytes - min(g.AsleepBytes, m.Residue[uuid])
		for _, o := range d.awake[uuid] {
			used += cmp.Or(o.Bytes, g.TotalBytes)
			if !slices.Contains(occupants, o) {
				occupants = append(occupants, o)
			}
		}
		beside = beside && (len(d.awake[uuid]) == 0 || used <= g.TotalBytes)
		if by := d.taken[uuid]; by != "" && by != m.Name {
			changes = uuid
		}
	}
	switch {
	case changes != "":
		return placement{gpus: gpus, rank: later, row: rowHands, gpu: changes}
	case beside:
		return placement{gpus: gpus}
	case m.Waiting == 0:
		return placement{gpus: gpus, rank: blocked, row: rowPreload, by: occupants}
	}
	return d.leave(m, gpus, occupants)
}

// reason says why a model does not come in on its best placement now.
func (d *decider) reason(m *Model, p placement) string {
	switch p.row {
	case rowBacksOff:
		return "it failed, and is tried again later"
	case rowTurn:
		return names(p.by) + " has its turn there"
	case rowHands:
		return fmt.Sprintf("GPU %s changes hands: the model %s comes or leaves there first", p.gpu, d.taken[p.gpu])
	case rowHigher:
		return names(p.by) + " is in use there, and goes first"
	case rowPinned:
		return names(p.by) + " is pinned there"
	case rowPreload:
		return "it is to be preloaded, and others are awake there: " + names(p.by)
	case rowNoSuchGPU:
		return "the launcher has no GPU " + p.gpu
	case rowTooFewGPUs:
		return fmt.Sprintf("it needs %d GPUs, and the launcher has %d", m.Count, len(d.GPUs))
	case rowHindered:
		return m.Hindered
	}
	g := d.GPUs[d.index(p.gpu)]
	return fmt.Sprintf("it needs %s of GPU %s, of which other processes than the launcher's use %s of %s",
		launcher.BytesText(m.Bytes), p.gpu, launcher.BytesText(g.ForeignBytes), launcher.BytesText(g.TotalBytes))
}

func names(models []*Model) string {
	var all []string
	for _, m := range models {
		all = append(all, m.Name)
	}
	return strings.Join(all, ", ")
}

// leave decides whether the models that are awake on a placement can leave for a model now.
func (d *decider) leave(m *Model, gpus []string, occupants []*Model) placement {
	p := placement{gpus: gpus, rank: leaves}
	for n, o := range occupants {
		by := occupants[n : n+1]
		until, inUse := d.usedUntil(o)
		switch {
		case o.Pinned:
			return placement{gpus: gpus, rank: blocked, row: rowPinned, by: by}
		case o.Priority > m.Priority && inUse:
			return placement{gpus: gpus, rank: blocked, row: rowHigher, by: by, until: until}
		}
		for _, g := range o.On {
			if by := d.taken[g]; by != "" && by != m.Name {
				return placement{gpus: gpus, rank: later, row: rowHands, gpu: g}
			}
		}
		if stays := d.staysUntil(o); stays.After(d.Now) && stays.After(p.until) {
			p.until, p.rank, p.row, p.by = stays, later, rowTurn, by
		}
		p.inUse = p.inUse || inUse
		idle := 0.0
		if !inUse {
			idle = d.Now.Sub(o.LastUsed).Seconds() / max(1, o.Return.Seconds())
		}
		if n == 0 || idle < p.idle {
			p.idle = idle
		}
		if o.Since.After(p.since) {
			p.since = o.Since
		}
		p.out = append(p.out, o.Name)
	}
	return p
}

// usedUntil reports whether a model is in use, and until when if no request comes; zero: not
// before its requests are answered.
func (d *decider) usedUntil(o *Model) (until time.Time, inUse bool) {
	if o.InFlight > 0 || o.Waiting > 0 {
		return time.Time{}, true
	}
	if !o.Repeats {
		return time.Time{}, false
	}
	until = o.LastUsed.Add(lingers)
	return until, until.After(d.Now)
}

// staysUntil returns until when an awake model stays there though others wait.
func (d *decider) staysUntil(o *Model) time.Time {
	stays, turn := o.Since.Add(d.MinResidency), o.Since.Add(d.Turn)
	until, inUse := d.usedUntil(o)
	if inUse && !until.IsZero() && until.Before(turn) {
		turn = until
	}
	if inUse && turn.After(stays) {
		return turn
	}
	return stays
}
