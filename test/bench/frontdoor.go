package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// newDoor starts a launcher with a front door, and gives the front door's address.
func (b *bench) newDoor(name string, flags ...string) (n *node, url string, err error) {
	address, err := harness.FreeAddress()
	if err != nil {
		return nil, "", err
	}
	n, err = b.newNode(name, append([]string{"--front-door", address}, flags...)...)
	return n, "http://" + address, err
}

// tokenTime is how long the engine takes for a token of a stream.
const tokenTime = 2 * time.Millisecond

// frontDoor sends requests for a model that is awake through the front door, through a bare
// reverse proxy, and with no proxy at all, in turn.
func (b *bench) frontDoor() (rows []row, err error) {
	n, door, err := b.newDoor("front-door")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	made, err := n.awake("served", spec(0, "--disable-uvicorn-access-log", "--sim-token-time="+tokenTime.String()))
	if err != nil {
		return nil, err
	}
	rows, err = b.besideBare("front door, model awake", made, door, labelled{"", oneToken(0)}, labelled{", bodies of 1 MB", oneToken(1 << 20)})
	if err != nil {
		return nil, err
	}
	chunks, err := b.chunks(made, door)
	return append(rows, chunks...), err
}

// chunks asks for streams at the front door and at a bare reverse proxy, in turn, and times the gaps
// between chunks. The engine makes one in each tokenTime.
func (b *bench) chunks(made launcherapi.Instance, door string) (rows []row, err error) {
	engine, err := harness.EngineAddress(made.PID)
	if err != nil {
		return nil, err
	}
	bare, err := b.startBareProxy(engine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var ours, own times
	for range b.n(40) {
		for _, way := range []struct {
			url  string
			gaps *times
		}{{door, &ours}, {bare.url, &own}} {
			gaps, err := gapsOf(b.ctx, client, way.url)
			if err != nil {
				return nil, err
			}
			*way.gaps = append(*way.gaps, gaps...)
		}
	}
	slower := float64(ours.P50()) / float64(own.P50())
	return []row{{
		Figure: "front door: between the chunks of a stream (ms); bare: httputil.ReverseProxy", Samples: len(ours), Ours: ours.String(), Bare: own.String(),
		Beside: fmt.Sprintf("%.2f× at p50", slower), Target: "p50 ≤ 1.2×", Met: slower <= 1.2,
	}}, nil
}

// gapsOf asks for a stream of 32 tokens, and returns the times between its chunks.
func gapsOf(ctx context.Context, client *http.Client, url string) (gaps times, err error) {
	body := `{"model":"model","prompt":"hello","max_tokens":32,"temperature":0,"stream":true,"ignore_eos":true}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	last := now()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "data: {") {
			continue
		}
		at := now()
		gaps, last = append(gaps, at.since(last)), at
	}
	if len(gaps) < 2 {
		return nil, fmt.Errorf("%s answered %d with %d chunks", url, resp.StatusCode, len(gaps))
	}
	return gaps[1:], nil
}

// wakes asks for two models of one GPU in turn, by their names: each request wakes the one that
// sleeps in place of the other. The time until its first byte is held beside the engines' own
// calls.
func (b *bench) wakes() (rows []row, err error) {
	for _, load := range []time.Duration{0, 300 * time.Millisecond, 1300 * time.Millisecond} {
		r, err := b.wakesOf(load)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// wakesOf takes turns between models that take half of load to sleep, and half to wake.
func (b *bench) wakesOf(load time.Duration) (r row, err error) {
	half := (load / 2).String()
	args := []string{"--sim-sleep-time=" + half, "--sim-wake-time=" + half}
	name := "wakes-" + load.String()
	n, door, err := b.newDoor(name)
	if err != nil {
		return row{}, err
	}
	p := &pair{n: n, awake: 1}
	defer func() { err = errors.Join(err, p.stop()) }()
	if p.gpus, err = b.bareGPUs(name + "-bare"); err != nil {
		return row{}, err
	}
	for i := range p.bare {
		in := spec(0, append(args, "--served-model-name", fmt.Sprintf("e%d", i))...)
		if _, err := n.swap(launcherapi.SwapIn{ID: fmt.Sprintf("e%d", i), Args: in.Args, GPUUUIDs: in.GPUUUIDs}); err != nil {
			return row{}, err
		}
		if p.bare[i], err = b.startBare(p.gpus, nil, args...); err != nil {
			return row{}, err
		}
		if i == 0 {
			if err := p.bare[0].post(b.ctx, "/sleep?level=1"); err != nil {
				return row{}, err
			}
		}
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for k := range b.n(int(40*time.Second/(load+800*time.Millisecond))) + 2 {
		if err := p.wake(client, door, k < 2); err != nil {
			return row{}, err
		}
	}
	return beyond(fmt.Sprintf("asked for at the front door, to the first byte, %s to sleep and wake; bare: /sleep, /wake_up and the same request", load), p.ours, p.own), nil
}

// wake asks for the model that sleeps, bare and at the front door.
func (p *pair) wake(client *http.Client, door string, warm bool) error {
	ctx, out, in := p.n.b.ctx, p.awake, 1-p.awake
	began := now()
	err := p.bare[out].post(ctx, "/sleep?level=1")
	if err == nil {
		err = p.bare[in].post(ctx, "/wake_up")
	}
	if err == nil {
		err = firstByte(ctx, p.bare[in].client, p.bare[in].url, "model")
	}
	own := now().since(began)
	if err != nil {
		return fmt.Errorf("cannot swap bare engines: %w", err)
	}
	began = now()
	err = firstByte(ctx, client, door, fmt.Sprintf("e%d", in))
	ours := now().since(began)
	p.awake = in
	if err == nil && !warm {
		p.own, p.ours = append(p.own, own), append(p.ours, ours)
	}
	return err
}

// firstByte asks for a token of a model, and returns when the answer has begun.
func firstByte(ctx context.Context, client *http.Client, url, model string) error {
	body := `{"model":"` + model + `","prompt":"hello","max_tokens":1,"temperature":0}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s answered %d: %s", url, resp.StatusCode, text)
	}
	_, err = resp.Body.Read(make([]byte, 1))
	return err
}
