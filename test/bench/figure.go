package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// times are the samples of one figure.
type times []time.Duration

// at gives the sample below which the share q of all lie, 0 ≤ q ≤ 1: 0.5 is
// the median. With fewer than a hundred samples 0.99 is the slowest.
func (t times) at(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (t times) p50() time.Duration { return t.at(0.5) }
func (t times) p99() time.Duration { return t.at(0.99) }

// minus takes the same time from each sample.
func (t times) minus(d time.Duration) times {
	out := make(times, 0, len(t))
	for _, x := range t {
		out = append(out, x-d)
	}
	return out
}

func (t times) String() string { return ms(t.p50()) + " / " + ms(t.p99()) }

// ms writes milliseconds.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// row is one line of the table.
type row struct {
	figure  string
	samples int
	ours    string // "p50 / p99" where it is a time
	bare    string // the same of the baseline; empty: there is none
	beside  string // ours compared with the baseline
	target  string
	met     bool
}

// timed is the row of a time that has a target at the median, the 99th
// percentile, or both; 0 is none.
func timed(figure string, ours, bare times, p50, p99 time.Duration) row {
	r := row{figure: figure + " (ms)", samples: len(ours), ours: ours.String(), met: true}
	if len(bare) > 0 {
		r.bare, r.beside = bare.String(), fmt.Sprintf("%+.2f ms", float64(ours.p50()-bare.p50())/1e6)
	}
	var targets []string
	if p50 > 0 {
		targets = append(targets, "p50 ≤ "+short(p50))
		r.met = r.met && ours.p50() <= p50
	}
	if p99 > 0 {
		targets = append(targets, "p99 ≤ "+short(p99))
		r.met = r.met && ours.p99() <= p99
	}
	r.target = strings.Join(targets, ", ")
	return r
}

func verdict(met bool) string {
	if met {
		return "yes"
	}
	return "**no**"
}

func short(d time.Duration) string { return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond)) }

// render makes the table.
func render(rows []row) string {
	var b strings.Builder
	b.WriteString("| figure | samples | launcher p50 / p99 | bare p50 / p99 | beside the bare | target | met |\n")
	b.WriteString("|---|---:|---:|---:|---:|---|---|\n")
	for _, r := range rows {
		met := verdict(r.met)
		if r.target == "" {
			met = ""
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s |\n", r.figure, r.samples, r.ours, r.bare, r.beside, r.target, met)
	}
	return b.String()
}
