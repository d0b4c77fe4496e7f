package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// render writes a picture as it is at now. No line is wider than width.
func render(p picture, now time.Time, width int) string {
	head := "launcher at " + p.server
	if p.door != nil {
		head += ", " + doorText(*p.door)
	}
	lines := []string{head}
	if p.lost != nil {
		lines = append(lines, fmt.Sprintf("NO ANSWER for %s: %s", age(now.Sub(p.lostSince)), oneLine(p.lost.Error())))
	}
	for n, line := range lines {
		lines[n] = cut(visible(line), width)
	}
	for _, t := range []*table{topGPUs(p), topModels(p, now), topSwaps(p, now)} {
		if len(t.rows) > 0 {
			lines = append(append(lines, ""), t.fit(width)...)
		}
	}
	if len(p.instances) == 0 && (p.door == nil || len(p.door.Models) == 0) {
		lines = append(lines, "", cut("no models", width))
	}
	return strings.Join(lines, "\n") + "\n"
}

func topGPUs(p picture) *table {
	t := &table{heading: []string{"GPU", "AWAKE", "USED", "OF", "TROUBLE", "ASLEEP", "OTHERS"}}
	for _, g := range p.gpus {
		awake := make([]string, len(g.Awake))
		for n, h := range g.Awake {
			awake[n] = h.InstanceID
			if launcher.State(h.State) != launcher.Awake {
				awake[n] += " (" + h.State + ")"
			}
		}
		others, trouble := "", ""
		if g.ForeignBytes > 0 {
			others = launcher.BytesText(g.ForeignBytes)
		}
		if !g.Healthy {
			trouble = oneLine(g.HealthReason)
		}
		t.add(indices([]string{g.UUID}, p.gpus), orDash(strings.Join(awake, ", ")), launcher.BytesText(g.MemoryUsedBytes), launcher.BytesText(g.MemoryTotalBytes),
			trouble, holders(g.Sleepers), others)
	}
	return t
}

// topModels has a row for each model of the front door, and for each other instance.
func topModels(p picture, now time.Time) *table {
	t := &table{heading: []string{"MODEL", "STATE", "FOR", "IN FLIGHT", "HELD", "WAITING", "GPUS", "INSTANCE", "WHY"}}
	left := slices.Clone(p.instances)
	if p.door != nil {
		for _, m := range p.door.Models {
			n := slices.IndexFunc(left, func(i launcherapi.Instance) bool { return i.InstanceID == m.InstanceID })
			if n < 0 {
				t.add(nameOf(m), m.State, "-", strconv.Itoa(m.InFlight), "0", strconv.Itoa(m.Waiting), "-", "", whyOf(m, now))
				continue
			}
			row := topInstance(left[n], nameOf(m), strconv.Itoa(m.Waiting), p.gpus, now)
			if why := whyOf(m, now); why != "" {
				row[len(row)-1] = why
			}
			t.add(row...)
			left = slices.Delete(left, n, n+1)
		}
	}
	for _, i := range left {
		t.add(topInstance(i, i.InstanceID, "", p.gpus, now)...)
	}
	return t
}

func topInstance(i launcherapi.Instance, name, waiting string, gpus []launcherapi.GPU, now time.Time) []string {
	id := ""
	if i.InstanceID != name {
		id = i.InstanceID
	}
	return []string{name, i.State, age(now.Sub(i.StateSince)), strconv.Itoa(i.InFlight), strconv.Itoa(i.Held), waiting, indices(i.GPUUUIDs, gpus), id, failure(i)}
}

// Swaps that are over are shown for a while, so that people see the short ones too.
const (
	swapShown  = 10 * time.Second
	swapsShown = 5
)

// current gives the swaps that wait or run, and the last ones that are just over.
func current(all []launcherapi.Swap, now time.Time) []launcherapi.Swap {
	over := 0
	var shown []launcherapi.Swap
	for _, s := range slices.Backward(all) {
		if s.State == launcherapi.SwapOver {
			if over == swapsShown || now.Sub(s.BeganAt.Add(swapTook(s))) > swapShown {
				continue
			}
			over++
		}
		shown = append(shown, s)
	}
	slices.Reverse(shown)
	return shown
}

// swapTook is how long a swap that is over took.
func swapTook(s launcherapi.Swap) time.Duration {
	total := 0.0
	switch {
	case s.Result != nil:
		total = s.Result.TotalMS
	case s.Problem != nil:
		total = s.Problem.TotalMS
	}
	return time.Duration(total * float64(time.Millisecond))
}

func topSwaps(p picture, now time.Time) *table {
	t := &table{heading: []string{"SWAP TO", "PHASE", "FOR", "GPUS", "WHY", "PHASES SO FAR"}}
	for _, s := range p.swaps {
		phase, span, why := s.Phase, age(now.Sub(s.BeganAt)), ""
		switch {
		case s.State == launcherapi.SwapWaiting:
			phase = "waiting"
			if s.Phase == launcherapi.PhaseGo {
				phase = "waits for go"
			}
		case s.Result != nil:
			phase, span = s.Result.Outcome, ms(s.Result.TotalMS)
		case s.Problem != nil:
			phase, span, why = s.Problem.Outcome, ms(s.Problem.TotalMS), oneLine(s.Problem.Detail)
		}
		t.add(orDash(s.InstanceID), orDash(phase), span, indices(s.GPUUUIDs, p.gpus), why, times(p.phases[s.SwapID]))
	}
	return t
}

const (
	gap       = 2  // columns of the terminal between two columns of a table
	narrowest = 12 // a column that is wider may be cut down to that
)

// fit writes the table in lines that are no wider than width. A column takes at most a third of
// that, unless it is the last one; one for which there is no room is left out.
func (t *table) fit(width int) []string {
	rows := append([][]string{t.heading}, t.rows...)
	lines := make([]strings.Builder, len(rows))
	used := 0
	for n := range t.heading {
		if !t.filled(n) {
			continue
		}
		room := 0
		for _, row := range rows {
			room = max(room, uniseg.StringWidth(row[n]))
		}
		if n < len(t.heading)-1 {
			room = min(room, max(8, width/3))
		}
		if n > 0 && used+min(room, narrowest) > width {
			continue
		}
		room = min(room, width-used)
		for r, row := range rows {
			cell := cut(row[n], room)
			lines[r].WriteString(cell + strings.Repeat(" ", room-uniseg.StringWidth(cell)+gap))
		}
		used += room + gap
	}
	out := make([]string, len(rows))
	for r := range lines {
		out[r] = strings.TrimRight(lines[r].String(), " ")
	}
	return out
}

// cut cuts a text that takes more than width columns of a terminal; … takes the place of the rest.
func cut(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var kept strings.Builder
	room, state := width-1, -1
	for text != "" {
		var cluster string
		var columns int
		cluster, text, columns, state = uniseg.FirstGraphemeClusterInString(text, state)
		if columns > room {
			break
		}
		kept.WriteString(cluster)
		room -= columns
	}
	return kept.String() + "…"
}
