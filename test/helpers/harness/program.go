// Package harness starts launchers and engines for the tests and for the
// benchmark, waits for their ends, and looks at the processes of this machine.
package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Build builds packages of the project into a folder, each under the name of
// its own folder: "launcher/cmd/launcher" becomes "launcher". root is the root
// of the repository; env is added to the environment of the build.
func Build(ctx context.Context, root, into string, env []string, packages ...string) error {
	for _, p := range packages {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "disable_grpc_modules", "-ldflags", "-s -w", "-o", filepath.Join(into, filepath.Base(p)), "./"+p)
		cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s in %s, which has to be the root of the repository: %w\n%s", p, root, err, out)
		}
	}
	return nil
}

// The ports of FreePort. They lie below those that the kernel hands out by itself
// (net.ipv4.ip_local_port_range begins at 32768), below the node ports of Kubernetes, and below those
// that launchers lease (from 20000 on).
// Were they not, a launcher beside the test could be given the same port for an engine
// meanwhile, and the kernel lets both bind it as long as the engine does not listen yet.
const firstFreePort, lastFreePort = 12000, 19999

// FreeAddress is an address of this machine at which nobody listens now.
func FreeAddress() (string, error) {
	port, err := FreePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// given are the ports that this process was given, each with a socket in the abstract namespace.
// A program that is started again does not listen meanwhile: without the socket, another test, also
// one of another process, could be given its port.
var given struct {
	sync.Mutex
	claims []net.Listener
}

// FreePort is a port of 127.0.0.1 at which nobody listens now, and which is given to nobody else
// while this process lives. No process starts meanwhile: until it runs its program it would have the
// socket, and the port be taken.
func FreePort() (uint16, error) {
	given.Lock()
	defer given.Unlock()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var failed error
	for range 100 {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		claim, err := net.Listen("unix", fmt.Sprintf("@hotseat-test-port-%d", port))
		if err != nil {
			failed = err
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			failed = errors.Join(err, claim.Close())
			continue
		}
		given.claims = append(given.claims, claim)
		return uint16(port), l.Close()
	}
	return 0, fmt.Errorf("cannot find a free port: %w", failed)
}

// GPU is the UUID of a simulated GPU.
func GPU(n int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", n) }

// Program is a program that was started, and whose end somebody waits for.
type Program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program, whose output goes to a file, both streams.
func Start(cmd *exec.Cmd, output *os.File) (*Program, error) {
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	p := &Program{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // how the program ended is in its state
	}()
	return p, nil
}

// PID is the program's, also when it has ended.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// HasEnded says whether the program has ended; a program that was never started,
// which is nil, has not.
func (p *Program) HasEnded() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Running says whether the program was started and lives.
func (p *Program) Running() bool { return p != nil && !p.HasEnded() }

// State tells how the program ended. It must have.
func (p *Program) State() *os.ProcessState {
	<-p.ended
	return p.cmd.ProcessState
}

// Signal sends to the program, which may have ended.
func (p *Program) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the program by SIGKILL and waits for its end.
func (p *Program) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Stop asks the program to end by SIGTERM, and waits for that as Wait does.
func (p *Program) Stop(limit time.Duration) error {
	p.Signal(syscall.SIGTERM)
	return p.Wait(limit)
}

// lastWords is how long a Go program that does not end may take to write what
// its goroutines do, which it does at SIGQUIT.
const lastWords = 5 * time.Second

// Wait waits for the program's end. One that has not ended after limit is ended
// by SIGQUIT or SIGKILL, and that is an error.
func (p *Program) Wait(limit time.Duration) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.ended:
		return nil
	case <-late.C:
	}
	p.Signal(syscall.SIGQUIT)
	select {
	case <-p.ended:
	case <-time.After(lastWords):
		p.Kill()
	}
	return fmt.Errorf("%s did not end within %s", p.cmd.Path, limit)
}

// AwaitServing waits until a launcher, or a vLLM, answers at an address that it
// is healthy. It is an error when the program ends first.
func (p *Program) AwaitServing(ctx context.Context, address string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.HasEnded() {
			return fmt.Errorf("%s ended before it served: %s", p.cmd.Path, p.cmd.ProcessState)
		}
		if healthy(ctx, client, address) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("nobody serves at %s", address), context.Cause(ctx))
		}
	}
}

func healthy(ctx context.Context, client *http.Client, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
