package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// audience is many watchers of one launcher, each with a connection of its own.
// It notes how long after a change of state the last of them had read the event.
type audience struct {
	size   int
	cancel context.CancelFunc
	ended  sync.WaitGroup
	client *http.Client

	mu      sync.Mutex
	heard   map[change]int // how many have read it
	took    times          // of the changes that all have read
	arrived int            // how many of those were to awake
	err     error
}

// change is one change of an instance's state: it became so, at that moment.
type change struct{ state, since string }

// gather opens the streams, which begin with what happens from now on.
func (n *node) gather(size int) (*audience, error) {
	list, err := n.client.List(n.b.ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(n.b.ctx)
	a := &audience{size: size, cancel: cancel, client: &http.Client{Transport: &http.Transport{}}, heard: map[change]int{}}
	url := fmt.Sprintf("%s/v2/vllm/instances/watch?since=%d", n.url, list.Revision)
	for range size {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			a.leave()
			return nil, err
		}
		resp, err := a.client.Do(req)
		if err != nil {
			a.leave()
			return nil, fmt.Errorf("cannot watch: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			a.leave()
			return nil, finish(resp)
		}
		a.ended.Go(func() { a.follow(ctx, resp) })
	}
	return a, nil
}

// follow reads one stream. It does not decode the events, since what that takes
// a thousand times would be counted as the launcher's.
func (a *audience) follow(ctx context.Context, resp *http.Response) {
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), 1<<20)
	var last change
	for lines.Scan() {
		c := change{member(lines.Bytes(), "state"), member(lines.Bytes(), "state_since")}
		if c != last { // else something else of the instance has changed
			a.note(c, time.Now())
			last = c
		}
	}
	if ctx.Err() == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.err = errors.Join(errors.New("a watch ended"), lines.Err())
	}
}

// member is the value of a member of a JSON object that is text.
func member(object []byte, name string) string {
	_, rest, _ := bytes.Cut(object, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

func (a *audience) note(c change, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard[c]++
	if a.heard[c] < a.size {
		return
	}
	since, err := time.Parse(time.RFC3339Nano, c.since)
	if err != nil {
		a.err = fmt.Errorf("cannot read when a state began: %w", err)
		return
	}
	a.took = append(a.took, at.Sub(since))
	if c.state == "awake" {
		a.arrived++
	}
}

// await waits until all have heard of so many instances that became awake.
func (a *audience) await(ctx context.Context, awake int) error {
	return eventually(ctx, "every watcher has the event", func() (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.arrived >= awake, a.err
	})
}

// leave closes the streams.
func (a *audience) leave() {
	a.cancel()
	a.ended.Wait()
	a.client.CloseIdleConnections()
}

const thousand = 1000

// watchers times the events of swaps until a thousand watchers have read them,
// and reads the launcher's memory with them. The bare figure is that of ten.
func (b *bench) watchers() (rows []row, err error) {
	p, err := b.newPair("watchers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var took [2]times
	var resident [2]int
	for i, size := range []int{10, thousand} {
		a, err := p.n.gather(size)
		if err != nil {
			return nil, err
		}
		defer a.leave() // also when something fails
		for turn := range b.n(50) {
			p.awake = 1 - p.awake
			if _, err := p.n.swap(launcherapi.SwapIn{InstanceID: fmt.Sprintf("e%d", p.awake)}); err != nil {
				return nil, err
			}
			if err := a.await(b.ctx, turn+1); err != nil {
				return nil, err
			}
		}
		if resident[i], err = status(p.n.pid(), "VmRSS"); err != nil {
			return nil, err
		}
		took[i] = a.took
		a.leave()
	}
	few, many := took[0], took[1]
	return []row{
		{Figure: "change of state → the last of 1,000 watchers has the event; bare: of 10 (ms)", Samples: len(many), Ours: many.String(), Bare: few.String(), Beside: ratio(many.P50(), few.P50())},
		{Figure: "1,000 watchers: the launcher's resident memory; bare: 10 watchers", Samples: 1, Ours: mb(resident[1]), Bare: mb(resident[0]), Beside: fmt.Sprintf("%+.1f kB a watcher", float64(resident[1]-resident[0])/1e3/(thousand-10))},
	}, nil
}

// ratio says how many times b goes into a; of what is not above zero it says
// nothing.
func ratio(a, b time.Duration) string {
	if b <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f×", float64(a)/float64(b))
}
