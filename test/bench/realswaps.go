package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// What a swap of real models may take beyond what the engines take for
// /sleep and /wake_up.
const (
	realSwapP50 = 6 * time.Millisecond
	realSwapP95 = 40 * time.Millisecond
)

// realTurns is how many swaps are taken in a row on one side before the other
// side has its turn, and realRest the time between: engines that have just been
// asked something spin for a while, on the processors that the others need.
const (
	realTurns = 50
	realRest  = 5 * time.Second
)

// pace is one way to space swaps, with what was measured.
type pace struct {
	name  string
	turns int
	pause time.Duration // between two swaps

	ours, bare times
	rest       times // of ours, what the engines did not take: all but their sleeps and wakes
	canary     times // the answer of each engine that the launcher woke, which no other time has in it
}

// realPair is two real models under the launcher, and the same two by hand. On
// both sides one of the two is awake and the other sleeps.
type realPair struct {
	r      *realVLLM
	hands  hands
	client *http.Client
	awake  map[bool]int // which of the two, by side: true is the launcher's
}

var realModels = [2]string{"tiny-a", "tiny-b"}

// realSwaps takes swaps of real vLLM, by the launcher and by bare calls.
func (b *bench) realSwaps(setup string) (paces []*pace, err error) {
	p := &realPair{r: &realVLLM{b: b}, hands: hands{}, client: &http.Client{Transport: &http.Transport{}}, awake: map[bool]int{true: 1, false: 1}}
	defer p.client.CloseIdleConnections()
	if p.r.n, err = b.newNode("real-swaps", "--start-method", "auto"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.hands.end(), p.r.n.stop()) }()
	if err := p.r.awaitPreloader(); err != nil {
		return nil, err
	}
	if err := p.start(setup); err != nil {
		return nil, err
	}
	paces = []*pace{
		{name: "back to back", turns: b.n(200)},
		{name: "a second between", turns: b.n(50), pause: time.Second},
	}
	for _, way := range paces {
		if err := p.take(way); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		fmt.Fprintf(b.progress, "swaps %s: launcher %s, bare %s, canary %s ms\n", way.name, p50p95(way.ours), p50p95(way.bare), p50p95(way.canary))
	}
	return paces, nil
}

// start makes both models on both sides; the second is awake.
func (p *realPair) start(setup string) error {
	ctx := p.r.b.ctx
	for i, name := range realModels {
		p.r.model = filepath.Join(setup, "models", name)
		in := launcherapi.SwapIn{ID: name, Args: p.r.arguments(), GPUUUIDs: []string{harness.GPU(0)}}
		if _, err := p.r.n.swap(in); err != nil {
			return fmt.Errorf("cannot swap %s in for the first time: %w", name, err)
		}
		if _, _, err := p.r.byHand(p.hands, name); err != nil {
			return err
		}
		if i == 0 {
			if err := ask(ctx, p.client, http.MethodPost, p.hands[name].url+"/sleep?level=1"); err != nil {
				return err
			}
		}
	}
	return nil
}

// take swaps on both sides in turn. The first two swaps of each side are not
// counted: the buffers of a first sleep are made then.
func (p *realPair) take(way *pace) error {
	for len(way.ours) < way.turns {
		for _, launcher := range []bool{false, true} {
			if _, err := p.inARow(2, realRest/2, launcher); err != nil {
				return err
			}
			row, err := p.inARow(min(realTurns, way.turns), way.pause, launcher)
			if err != nil {
				return err
			}
			if launcher {
				way.ours, way.rest, way.canary = append(way.ours, row.ours...), append(way.rest, row.rest...), append(way.canary, row.canary...)
			} else {
				way.bare = append(way.bare, row.ours...)
			}
		}
	}
	return nil
}

// inARow takes swaps on one side.
func (p *realPair) inARow(count int, pause time.Duration, launcher bool) (row pace, err error) {
	for range count {
		out, in := realModels[p.awake[launcher]], realModels[1-p.awake[launcher]]
		took, engines, canary, err := p.swap(launcher, out, in)
		if err != nil {
			return pace{}, err
		}
		p.awake[launcher] = 1 - p.awake[launcher]
		row.ours, row.rest, row.canary = append(row.ours, took), append(row.rest, took-engines), append(row.canary, canary)
		select {
		case <-time.After(pause):
		case <-p.r.b.ctx.Done():
			return pace{}, p.r.b.ctx.Err()
		}
	}
	return row, nil
}

// swap takes one swap on one side, and says how much of it the engines took. The canary, an
// answer that no bare call asks for, is told beside it.
func (p *realPair) swap(launcher bool, out, in string) (took, engines, canary time.Duration, err error) {
	ctx, began := p.r.b.ctx, now()
	if launcher {
		done, err := p.r.n.client.Swap(ctx, launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: in}}, nil)
		took = now().since(began)
		if err != nil {
			return took, 0, 0, err
		}
		canary = phase(done.In, launcherapi.PhaseCanary)
		return took - canary, phase(done.In, "wake") + phase(&done.Out[0], "sleep"), canary, nil
	}
	err = ask(ctx, p.client, http.MethodPost, p.hands[out].url+"/sleep?level=1")
	if err == nil {
		err = ask(ctx, p.client, http.MethodPost, p.hands[in].url+"/wake_up")
	}
	took = now().since(began)
	return took, took, 0, err
}

// phase is how long the instance took for it the last time.
func phase(i *launcherapi.Instance, name string) time.Duration {
	for _, t := range i.Timings {
		if t.Name == name {
			return time.Duration(t.DurationMS * float64(time.Millisecond))
		}
	}
	return 0
}

// p50p95 writes the median and the 95th percentile in milliseconds.
func p50p95(t times) string { return figures.MS(t.P50()) + " / " + figures.MS(t.At(0.95)) }

// renderRealSwaps makes the table of the swaps of real vLLM.
func renderRealSwaps(paces []*pace) string {
	var b strings.Builder
	b.WriteString("| swap of real models | samples | launcher p50 / p95, ms | of it not the engines' p50 / p95, ms | bare p50 / p95, ms | beyond p50 / p95, ms | canary p50 / p95, ms | target | met |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---|---|\n")
	for _, w := range paces {
		p50, p95 := w.ours.P50()-w.bare.P50(), w.ours.At(0.95)-w.bare.At(0.95)
		met := p50 <= realSwapP50 && p95 <= realSwapP95
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | p50 ≤ %s, p95 ≤ %s | %s |\n", w.name, len(w.ours), p50p95(w.ours), p50p95(w.rest), p50p95(w.bare), figures.MS(p50)+" / "+figures.MS(p95), p50p95(w.canary), figures.Short(realSwapP50), figures.Short(realSwapP95), figures.Verdict(met))
	}
	return b.String()
}
