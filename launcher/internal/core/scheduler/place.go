package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// placement is where a model could be awake.
type placement struct {
	gpus []string
	out  []string // models that leave

	reason   string    // why not now; empty: now
	until    time.Time // when that may be over; zero: only a change helps
	never    string    // why not as long as the same models are there
	hopeless bool      // that is no matter of turns

	idle time.Duration // how long those that leave were not used, by what their return costs
}

// place returns the best placement of a model: one that is free, one whose models can leave now,
// one that is free soonest.
func (d *decider) place(m *Model) placement {
	var best placement
	found := false
	for _, gpus := range d.candidates(m) {
		p := d.look(m, gpus)
		if !found || better(p, best) {
			best, found = p, true
		}
	}
	if !found {
		return placement{never: explain("it needs %d GPUs, and the launcher has %d", m.Count, len(d.GPUs)), hopeless: true}
	}
	return best
}

// better orders placements.
func better(a, b placement) bool {
	rank := func(p placement) int {
		switch {
		case p.hopeless:
			return 4
		case p.never != "":
			return 3
		case p.reason != "":
			return 2
		case len(p.out) > 0:
			return 1
		}
		return 0
	}
	if x, y := rank(a), rank(b); x != y {
		return x < y
	}
	if !a.until.Equal(b.until) {
		return !a.until.IsZero() && (b.until.IsZero() || a.until.Before(b.until))
	}
	return a.idle > b.idle
}

// candidates returns the sets of GPUs on which a model could be: those of its instance or those
// that it has to be on, or else a set that is built from each GPU on, by what is best next to it.
func (d *decider) candidates(m *Model) [][]string {
	switch {
	case m.State == launcher.Sleeping:
		return [][]string{m.On}
	case len(m.GPUs) > 0:
		return [][]string{m.GPUs}
	case m.Count > len(d.GPUs):
		return nil
	}
	alone := make([]placement, 0, len(d.GPUs))
	for _, g := range d.GPUs {
		alone = append(alone, d.look(m, []string{g.UUID}))
	}
	slices.SortStableFunc(alone, func(a, b placement) int {
		switch {
		case better(a, b):
			return -1
		case better(b, a):
			return 1
		}
		return 0
	})
	if m.Count <= 1 {
		return [][]string{alone[0].gpus}
	}
	var all [][]string
	for n := range alone {
		set := slices.Clone(alone[n].gpus)
		for _, g := range d.companions(alone[n].gpus[0], alone) {
			if len(set) < m.Count {
				set = append(set, g)
			}
		}
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
		case slices.ContainsFunc(d.Models, func(m Model) bool {
			return m.State == launcher.Awake && slices.Contains(m.On, g) && slices.Contains(m.On, uuid)
		}):
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
	p := placement{gpus: gpus}
	var occupants []*Model
	beside := true // it fits beside those that are awake
	for _, uuid := range gpus {
		n := d.index(uuid)
		if n < 0 {
			return placement{gpus: gpus, never: explain("the launcher has no GPU %s", uuid), hopeless: true}
		}
		g := d.GPUs[n]
		need, there := cmp.Or(m.Bytes, g.TotalBytes), d.occupants(uuid)
		if need+g.ForeignBytes > g.TotalBytes {
			return placement{gpus: gpus, hopeless: true, never: explain("it needs %s of GPU %s, of which other processes than the launcher's use %s of %s",
				launcher.BytesText(need), uuid, launcher.BytesText(g.ForeignBytes), launcher.BytesText(g.TotalBytes))}
		}
		used := g.ForeignBytes + g.AsleepBytes
		for _, o := range there {
			used += cmp.Or(o.Bytes, g.TotalBytes)
			if !slices.Contains(occupants, o) {
				occupants = append(occupants, o)
			}
		}
		beside = beside && (len(there) == 0 || used+need <= g.TotalBytes)
		if by := d.taken[uuid]; by != "" && by != m.Name {
			p.reason = explain("GPU %s changes hands: %s comes or leaves first", uuid, by)
		}
	}
	if p.reason != "" || beside {
		return p
	}
	if m.Waiting == 0 { // it is to be preloaded
		return placement{gpus: gpus, never: "others are awake there: " + names(occupants)}
	}
	d.leave(m, &p, occupants)
	return p
}

func names(models []*Model) string {
	var all []string
	for _, m := range models {
		all = append(all, m.Name)
	}
	return strings.Join(all, ", ")
}

// occupants returns the models that are awake on a GPU.
func (d *decider) occupants(uuid string) []*Model {
	var all []*Model
	for n := range d.Models {
		if m := &d.Models[n]; m.State == launcher.Awake && slices.Contains(m.On, uuid) {
			all = append(all, m)
		}
	}
	return all
}

// leave decides whether the models that are awake on a placement can leave for a model now.
func (d *decider) leave(m *Model, p *placement, occupants []*Model) {
	for _, o := range occupants {
		stays := d.MinResidency
		inUse := o.InFlight > 0 || o.Waiting > 0
		switch {
		case o.Pinned:
			*p = placement{gpus: p.gpus, never: explain("%s is pinned there", o.Name)}
			return
		case o.Priority > m.Priority && inUse:
			*p = placement{gpus: p.gpus, reason: explain("%s is in use there, and goes first", o.Name)}
			return
		case inUse:
			stays = max(stays, d.Turn)
		}
		for _, g := range o.On {
			if by := d.taken[g]; by != "" && by != m.Name && by != o.Name {
				*p = placement{gpus: p.gpus, reason: explain("GPU %s changes hands: %s comes or leaves first", g, by)}
				return
			}
		}
		if free := o.Since.Add(stays); free.After(d.Now) && free.After(p.until) {
			p.until, p.reason = free, explain("%s has its turn there", o.Name)
		}
		unused := d.Now.Sub(o.LastUsed)
		if inUse {
			unused = 0
		}
		idle := unused / max(1, time.Duration(o.Return/time.Second))
		if len(p.out) == 0 || idle < p.idle {
			p.idle = idle
		}
		p.out = append(p.out, o.Name)
	}
}
