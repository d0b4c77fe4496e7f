package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

var update = flag.Bool("update", false, "write the golden files anew")

// bin is the folder of the built programs, side by side as `make build` puts
// them.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "HOTSEAT_") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv(envServer, "127.0.0.1:1") // never one that happens to run here
	temporary, err := harness.OwnTemporaryFolder()
	if err == nil {
		bin, err = build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(temporary)
		os.Exit(code)
	}))
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "bin")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"launcher": ".", "enginesim": "../../../test/enginesim"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update once")
	require.Equal(t, string(want), got)
}

// result is what a call of the program left.
type result struct {
	code     int
	out, err string
}

// call runs a command in this process.
func call(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := (&cli{out: &out, err: &errs}).run(t.Context(), args)
	return result{code, out.String(), errs.String()}
}

// daemonProcess is a launcher in a process of its own.
type daemonProcess struct {
	t        *testing.T
	cmd      *exec.Cmd
	address  string
	stateDir string
	log      *lines
	code     chan int // gives its exit code, once
}

// startDaemon runs serve, and waits until it serves. It is ended, with its
// engines, when the test ends.
func startDaemon(t *testing.T, args ...string) *daemonProcess {
	t.Helper()
	return startIn(t, t.TempDir(), []string{"serve"}, args...)
}

func startIn(t *testing.T, stateDir string, command []string, args ...string) *daemonProcess {
	t.Helper()
	d := spawn(t, exec.Command(filepath.Join(bin, "launcher"), append(append(command,
		"--listen", "127.0.0.1:0", "--front-door=", "--gpus", "simulated:2", "--state-dir", stateDir,
		"--vllm", filepath.Join(bin, "enginesim")), args...)...))
	d.stateDir = stateDir
	d.address = d.awaitServing(0)
	return d
}

// awaitServing gives the address of the nth start of serve in the log.
func (d *daemonProcess) awaitServing(n int) string {
	d.t.Helper()
	serving := regexp.MustCompile(`msg="launcher is serving" address=(\S+)`)
	var address string
	d.log.await(d.t, func(all string) bool {
		found := serving.FindAllStringSubmatch(all, -1)
		if len(found) > n {
			address = found[n][1]
		}
		return address != ""
	})
	return address
}

// spawn starts a program, collects its standard error, and ends it when the
// test ends.
func spawn(t *testing.T, cmd *exec.Cmd) *daemonProcess {
	t.Helper()
	d := &daemonProcess{t: t, cmd: cmd, log: newLines(), code: make(chan int, 1)}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		d.log.read(stderr)
		_ = cmd.Wait()
		d.code <- exitCode(cmd.ProcessState)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		d.await()
		if t.Failed() {
			t.Log(d.log.text())
		}
	})
	return d
}

func exitCode(s *os.ProcessState) int {
	if status := s.Sys().(syscall.WaitStatus); status.Signaled() {
		return -int(status.Signal())
	}
	return s.ExitCode()
}

// await waits for the end and gives the exit code; it may be called again.
func (d *daemonProcess) await() int {
	d.t.Helper()
	select {
	case code := <-d.code:
		d.code <- code
		return code
	case <-time.After(patience.Wait()):
		_ = d.cmd.Process.Kill()
		d.t.Errorf("%v did not end", d.cmd.Args)
		return -1
	}
}

// call runs a client command against this launcher.
func (d *daemonProcess) call(args ...string) result {
	d.t.Helper()
	d.t.Setenv(envServer, d.address)
	return call(d.t, args...)
}

// do is a call that must succeed.
func (d *daemonProcess) do(args ...string) result {
	d.t.Helper()
	r := d.call(args...)
	require.Equal(d.t, exitOK, r.code, "%v: %s", args, r.err)
	return r
}

func (d *daemonProcess) get(id string) launcherapi.Instance {
	d.t.Helper()
	cl, err := client.New(client.Options{Server: d.address})
	require.NoError(d.t, err)
	defer cl.Close()
	i, err := cl.Get(d.t.Context(), id)
	require.NoError(d.t, err)
	return i
}

// lines collects what a process writes.
type lines struct {
	mu      sync.Mutex
	all     strings.Builder
	changed chan struct{} // closed at the next line, and at the end
	over    bool
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) read(r io.Reader) {
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		l.mu.Lock()
		l.all.WriteString(line)
		l.over = err != nil
		close(l.changed)
		l.changed = make(chan struct{})
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// await waits until done says so of all that was written.
func (l *lines) await(t *testing.T, done func(all string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	defer cancel()
	for {
		l.mu.Lock()
		all, changed, over := l.all.String(), l.changed, l.over
		l.mu.Unlock()
		if done(all) {
			return
		}
		require.False(t, over, "the process has ended:\n%s", all)
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "it did not say so in time", all)
		}
	}
}

func (l *lines) awaitText(t *testing.T, text string) {
	t.Helper()
	l.await(t, func(all string) bool { return strings.Contains(all, text) })
}

// processesWith gives the processes whose command line or environment holds a
// text.
func processesWith(t *testing.T, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			if err == nil && bytes.Contains(content, []byte(text)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
