package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// bareEngine is an engine that nobody supervises: started by os/exec alone.
type bareEngine struct {
	cmd     *exec.Cmd
	log     *os.File
	url     string
	client  *http.Client
	began   moment // when the start was asked for
	healthy moment // when it was first seen to answer
	ended   bool   // and reaped
}

// bareGPUs makes a folder of simulated GPUs for bare engines.
func (b *bench) bareGPUs(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	_, err := simgpu.Create(dir, []simgpu.GPU{{UUID: harness.GPU(0), Product: "simulated", MemoryTotalBytes: 80 << 30}})
	return dir, err
}

// startBare starts an engine as the launcher does, and asks for its health
// every millisecond until it answers.
func (b *bench) startBare(gpus string, env []string, args ...string) (*bareEngine, error) {
	addr, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	e := &bareEngine{url: "http://" + addr, client: &http.Client{Transport: &http.Transport{}}}
	if e.log, err = os.CreateTemp(b.dir, "bare-*.log"); err != nil {
		return nil, fmt.Errorf("cannot make the log: %w", err)
	}
	e.cmd = exec.Command(b.engine, append([]string{"serve", "model", "--host", "127.0.0.1", "--port", port, "--enable-sleep-mode"}, args...)...)
	e.cmd.Env = append(os.Environ(), simgpu.EnvDir+"="+gpus, "CUDA_VISIBLE_DEVICES=0", "VLLM_SERVER_DEV_MODE=1", engineMark+"="+e.url)
	e.cmd.Env = append(e.cmd.Env, env...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	e.began = now()
	if err := e.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start an engine: %w", err), e.log.Close())
	}
	if err := e.awaitHealthy(b.ctx); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *bareEngine) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if ask(ctx, e.client, http.MethodGet, e.url+"/health") == nil {
			e.healthy = now()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("an engine never became healthy: %w", ctx.Err())
		}
	}
}

// post makes one of the engine's own calls.
func (e *bareEngine) post(ctx context.Context, path string) error {
	return ask(ctx, e.client, http.MethodPost, e.url+path)
}

// kill sends SIGKILL to the API server, and returns when it was reaped.
func (e *bareEngine) kill() error {
	if err := e.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("cannot kill an engine: %w", err)
	}
	_ = e.cmd.Wait() // how it ended is known
	e.ended = true
	return nil
}

// engineMark is a variable that every process of an engine inherits, with the
// engine's address.
const engineMark = "HOTSEAT_BENCH_ENGINE"

// stop ends the whole tree.
func (e *bareEngine) stop() error {
	e.client.CloseIdleConnections()
	t, err := hold(marked(engineMark, e.url))
	t.kill()
	if !e.ended {
		_ = e.cmd.Wait() // how it ended is known
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, late := t.gone(ctx)
	t.release()
	return errors.Join(err, late, e.log.Close())
}

// finish reads an answer to its end; it has to be a 200.
func finish(resp *http.Response) error {
	_, err := io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", resp.Request.URL, resp.Status)
	}
	return nil
}

// stamp reads the moment that an engine wrote into a file.
func stamp(path string) (moment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("cannot read a stamp: %w", err)
	}
	var mono int64
	if _, err := fmt.Sscanf(string(data), "%d", &mono); err != nil {
		return 0, fmt.Errorf("cannot understand the stamp %s: %w", strconv.Quote(string(data)), err)
	}
	return moment(mono), nil
}
