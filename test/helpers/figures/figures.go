// Package figures writes what benchmarks measured: times and their quantiles, a
// table beside its targets, and the document that the table stands in.
package figures

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Times are the samples of one figure.
type Times []time.Duration

// At gives the sample below which the share q of all lie, 0 ≤ q ≤ 1: 0.5 is
// the median. With fewer than a hundred samples 0.99 is the slowest.
func (t Times) At(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// P50 is the median.
func (t Times) P50() time.Duration { return t.At(0.5) }

// P99 is the 99th percentile.
func (t Times) P99() time.Duration { return t.At(0.99) }

// Minus takes the same time from each sample.
func (t Times) Minus(d time.Duration) Times {
	out := make(Times, 0, len(t))
	for _, x := range t {
		out = append(out, x-d)
	}
	return out
}

func (t Times) String() string { return MS(t.P50()) + " / " + MS(t.P99()) }

// MS writes milliseconds.
func MS(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Row is one line of a table.
type Row struct {
	Heading string // of the table that begins with the row; empty: the row goes on with one
	Figure  string
	Samples int
	Ours    string // "p50 / p99" where it is a time
	Bare    string // the same of the baseline; empty: there is none
	Beside  string // ours compared with the baseline
	Target  string
	Met     bool
}

// Timed is the row of a time that has a target at the median, the 99th
// percentile, or both; 0 is none.
func Timed(figure string, ours, bare Times, p50, p99 time.Duration) Row {
	r := Row{Figure: figure + " (ms)", Samples: len(ours), Ours: ours.String(), Met: true}
	if len(bare) > 0 {
		r.Bare, r.Beside = bare.String(), fmt.Sprintf("%+.2f ms", float64(ours.P50()-bare.P50())/1e6)
	}
	var targets []string
	if p50 > 0 {
		targets = append(targets, "p50 ≤ "+Short(p50))
		r.Met = r.Met && ours.P50() <= p50
	}
	if p99 > 0 {
		targets = append(targets, "p99 ≤ "+Short(p99))
		r.Met = r.Met && ours.P99() <= p99
	}
	r.Target = strings.Join(targets, ", ")
	return r
}

// Verdict writes whether a target was met.
func Verdict(met bool) string {
	if met {
		return "yes"
	}
	return "**no**"
}

// Short writes a bound in milliseconds.
func Short(d time.Duration) string { return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond)) }

// Render makes a table, and a further one for each row with a heading; who names what was
// measured.
func Render(who string, rows []Row) string {
	var b strings.Builder
	for n, r := range rows {
		if r.Heading != "" {
			if n > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "### %s\n\n", r.Heading)
		}
		if n == 0 || r.Heading != "" {
			b.WriteString("| figure | samples | " + who + " p50 / p99 | bare p50 / p99 | beside the bare | target | met |\n")
			b.WriteString("|---|---:|---:|---:|---:|---|---|\n")
		}
		met := Verdict(r.Met)
		if r.Target == "" {
			met = ""
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s |\n", r.Figure, r.Samples, r.Ours, r.Bare, r.Beside, r.Target, met)
	}
	return b.String()
}
