package llmd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	root = "../.."
	// patience bounds every wait for something that has to happen.
	patience = 60 * time.Second
	tick     = 20 * time.Millisecond
)

// The programs under test, built by TestMain, and the Helm of the cluster's tests.
var bin struct{ launcher, enginesim, helm string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hotseat-llmd-")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(dir string) error {
	bin.launcher, bin.enginesim = filepath.Join(dir, "launcher"), filepath.Join(dir, "enginesim")
	for program, of := range map[string]string{bin.launcher: "./launcher/cmd/launcher", bin.enginesim: "./test/enginesim"} {
		if _, err := in(root, "go", "build", "-o", program, of); err != nil {
			return err
		}
	}
	path, err := in(root, "go", "run", "./test/cluster/cmd/cluster", "helm-path")
	bin.helm = strings.TrimSpace(path)
	return err
}

// in runs a program in a folder and gives what it writes.
func in(dir, name string, args ...string) (string, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot run %s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

// serve runs the launcher with these arguments, which have it listen at an
// address, until the test ends, and waits until it serves.
func serve(t *testing.T, address string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "launcher.log"))
	require.NoError(t, err)
	cmd := exec.Command(bin.launcher, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "HOTSEAT_SIMGPU_DIR="+t.TempDir())
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // that it has ended is what counts
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("the launcher does not end")
		}
		_ = log.Close()
	})
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the launcher has ended: %s", text)
		default:
		}
		return status(t, "http://"+address+"/readyz") == http.StatusOK
	}, patience, tick, "the launcher serves")
}

// status is that of an answer to GET; 0 where nobody answers.
func status(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// freeAddress is an address at which nobody listens. No process starts meanwhile: until it
// runs its program it would have the socket.
func freeAddress(t *testing.T) string {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
