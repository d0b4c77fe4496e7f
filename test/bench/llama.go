package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// llama asks for two models of real llama-server in turn, by their names: at the front door, after a swap that
// puts one to sleep and wakes the other, and at llama-server's own router, which keeps one loaded. Both models
// fit on the simulated GPU, so that a request alone would swap nothing.
func (b *bench) llama() (rows []row, err error) {
	real, err := harness.FindLlamaCpp()
	if err != nil {
		return nil, err
	}
	n, door, err := b.newDoor("llama", "--llama-server", real.Program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	files := map[string]string{"tiny-a": real.ModelA, "tiny-b": real.ModelB}
	for id, file := range files {
		in := launcherapi.SwapIn{ID: id, Engine: "llamacpp", Args: []string{file, "--alias", id}, GPUUUIDs: []string{harness.GPU(0)}}
		if _, err := n.swap(in); err != nil {
			return nil, err
		}
	}
	router, err := b.startRouter(real.Program, files)
	if err != nil {
		return nil, err
	}
	defer router.stop()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var ours, own times
	for k := range 2 * (b.n(50) + 1) {
		for _, way := range []struct {
			url   string
			times *times
		}{{door, &ours}, {router.url, &own}} {
			id, began := []string{"tiny-a", "tiny-b"}[k%2], now()
			if way.url == door {
				if _, err := n.swap(launcherapi.SwapIn{InstanceID: id}); err != nil {
					return nil, err
				}
			}
			if err := firstByte(b.ctx, client, way.url, id); err != nil {
				return nil, err
			}
			if k >= 2 { // the first turn warms up
				*way.times = append(*way.times, now().since(began))
			}
		}
	}
	return []row{{
		Figure: "llama.cpp, a swap and a request → first byte (ms); bare: a request at llama-server's own router", Samples: len(ours), Ours: ours.String(), Bare: own.String(),
		Beside: fmt.Sprintf("%.2f× at p50", float64(ours.P50())/float64(own.P50())),
	}}, nil
}

// router is llama-server that loads models by itself.
type router struct {
	url string
	cmd *exec.Cmd
}

func (b *bench) startRouter(program string, files map[string]string) (*router, error) {
	folder := filepath.Join(b.dir, "router")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	for id, file := range files {
		if err := os.Symlink(file, filepath.Join(folder, id+".gguf")); err != nil {
			return nil, fmt.Errorf("cannot name a model: %w", err)
		}
	}
	address, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot read an address: %w", err)
	}
	r := &router{url: "http://" + address, cmd: exec.Command(program, "--host", host, "--port", port, "--models-dir", folder, "--models-max", "1", "--device", "none")}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children end with it
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start llama-server: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	err = eventually(b.ctx, "llama-server's router serves", func() (bool, error) {
		return ask(b.ctx, client, http.MethodGet, r.url+"/health") == nil, nil
	})
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// stop ends the router and the servers that it has started.
func (r *router) stop() {
	late := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)             // it may have ended
	_ = r.cmd.Wait()                                      // by the signal
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // a server that it has left
}
