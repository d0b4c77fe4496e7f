package process_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/cgroup"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/launcher/internal/process/procfs"
)

// roleVariable makes this test binary play a role (roles_test.go) in place of
// running tests.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(strings.Fields(role))
		os.Exit(99) // a role ends by itself, or is killed
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// eachMode runs a test in each cgroup mode that works here.
func eachMode(t *testing.T, test func(t *testing.T, h *host)) {
	t.Helper()
	for _, mode := range []cgroup.Mode{cgroup.V2, cgroup.V1, cgroup.None} {
		t.Run(string(mode), func(t *testing.T) { test(t, newHost(t, mode)) })
	}
}

// host is a Host under test, and what is needed to make another like it.
type host struct {
	*process.Host
	mode    cgroup.Mode
	mark    string
	exitDir string
}

var hosts int

// newHost makes a Host that must have no process left at the end of the test.
func newHost(t *testing.T, mode cgroup.Mode) *host {
	t.Helper()
	hosts++
	h := &host{mode: mode, mark: fmt.Sprintf("test-%d-%d", os.Getpid(), hosts), exitDir: t.TempDir()}
	groups, err := openHost(h)
	if err != nil {
		t.Skipf("NOT TESTED: this machine does not offer cgroup mode %s: %v", mode, err)
	}
	t.Cleanup(func() {
		found, err := h.Find()
		require.NoError(t, err)
		for _, tree := range found {
			_ = h.Clear(context.Background(), tree.Name)
		}
		require.Empty(t, found, "processes left by the test")
		require.NoError(t, h.Close())
		require.NoError(t, groups.Close())
		for _, hierarchy := range []string{"unified", "freezer", "memory"} {
			left, err := filepath.Glob("/sys/fs/cgroup/" + hierarchy + "/*" + h.mark + "*")
			require.NoError(t, err)
			require.Empty(t, left, "groups left")
		}
	})
	return h
}

func openHost(h *host) (*cgroup.Manager, error) {
	quiet := slog.New(slog.DiscardHandler)
	groups, err := cgroup.Open(cgroup.Options{Mode: h.mode, Name: "hotseat-" + h.mark, Logger: quiet})
	if err != nil {
		return nil, err
	}
	h.Host, err = process.NewHost(process.Options{
		Mark: h.mark, Cgroups: groups, ExitDir: h.exitDir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	return groups, err
}

// child is a started instance and what it says.
type child struct {
	*process.Process
	t     *testing.T
	lines *bufio.Reader
}

// command of an instance that plays a role.
func command(name, role string) process.Command {
	return process.Command{
		Name: name,
		Path: "/proc/self/exe",
		Args: []string{"engine", name},
		Env:  cast(os.Environ(), role),
	}
}

// cast gives the environment a role in place of the one it has.
func cast(env []string, role string) []string {
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, roleVariable+"=") })
	return append(env, roleVariable+"="+role)
}

// start starts an instance, and waits until it says "ready".
func (h *host) start(t *testing.T, name, role string) *child {
	t.Helper()
	output, input, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { output.Close() })
	c := command(name, role)
	c.Output = input
	p, err := h.Start(c)
	require.NoError(t, err)
	require.NoError(t, input.Close())
	require.NoError(t, output.SetReadDeadline(time.Now().Add(patience)))
	return &child{Process: p, t: t, lines: bufio.NewReader(output)}
}

// says waits for a line that begins with the word, and gives the rest of it.
func (c *child) says(word string) string {
	c.t.Helper()
	for {
		line, err := c.lines.ReadString('\n')
		require.NoError(c.t, err, "while waiting for %q", word)
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word); ok {
			return strings.TrimSpace(rest)
		}
	}
}

func (c *child) saysPID(word string) int {
	c.t.Helper()
	pid, err := strconv.Atoi(c.says(word))
	require.NoError(c.t, err)
	return pid
}

func stop(t *testing.T, p *process.Process) {
	t.Helper()
	require.NoError(t, p.Stop(patient(t), patience/4))
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func exited(t *testing.T, p *process.Process) process.Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		require.Fail(t, "the process has not ended")
	}
	return p.Exit()
}

func code(t *testing.T, exit process.Exit) int {
	t.Helper()
	require.NotNil(t, exit.Code, "the exit code is not known")
	return *exit.Code
}

func alive(pid int) bool {
	stat, err := procfs.Read(pid)
	return err == nil && stat.Alive()
}

// play plays a role in a child; what it says goes to fd 1.
func play(role []string) {
	switch role[0] {
	case "exit":
		code, _ := strconv.Atoi(role[1])
		os.Exit(code)
	case "wait":
		rest()
	case "graceful":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		rest()
	case "describe":
		describe()
	case "eat":
		eat()
	case "parent": // parent KIND: a worker of that kind, then rest
		spawn(role[1])
		rest()
	case "leaver": // double fork: the one in between
		spawn(role[1])
		os.Exit(0)
	case "respawner":
		respawn()
	case "host":
		playHost(role)
	case "serve":
		playServe(role)
	case "init":
		playInit(role)
	}
}

func rest() {
	fmt.Println("ready")
	time.Sleep(5 * time.Minute)
}

func describe() {
	session, _ := unix.Getsid(0)
	null, _ := os.Readlink("/proc/self/fd/0")
	fds, _ := os.ReadDir("/proc/self/fd")
	var marks []string
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "HOTSEAT_") {
			marks = append(marks, variable)
		}
	}
	dir, _ := os.Getwd()
	open := slices.DeleteFunc(fds, func(e os.DirEntry) bool {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err != nil || strings.HasPrefix(target, "anon_inode:")
	})
	fmt.Println("leader", session == os.Getpid())
	fmt.Println("stdin", null)
	fmt.Println("files", len(open))
	fmt.Println("marks", strings.Join(marks, " "))
	fmt.Println("folder", dir)
	fmt.Fprintln(os.Stderr, "ready")
	time.Sleep(5 * time.Minute)
}

func eat() {
	fmt.Println("ready")
	hungry := make(chan os.Signal, 1)
	signal.Notify(hungry, syscall.SIGUSR1)
	<-hungry
	var held [][]byte
	for range 256 {
		block := make([]byte, 4<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	os.Exit(len(held) % 7)
}

// spawn starts a worker and says its id.
//
//	plain       nothing special
//	group       in a process group of its own
//	session     in a session of its own
//	daemon      in a session of its own, by way of a process that ends at once
//	hidden      as daemon, with an environment that has nothing of ours
//	stubborn    ignores SIGTERM
func spawn(kind string) {
	attr := &syscall.SysProcAttr{}
	role, env := "wait", os.Environ()
	switch kind {
	case "group":
		attr.Setpgid = true
	case "session":
		attr.Setsid = true
	case "stubborn":
		role = "stubborn"
	case "daemon", "hidden":
		role = "leaver session"
		attr.Setsid = true
	}
	if kind == "hidden" {
		env = nil
	}
	pid, _, err := syscall.StartProcess("/proc/self/exe", []string{"worker"}, &syscall.ProcAttr{
		Env: cast(env, role), Files: []uintptr{0, 1, 2}, Sys: attr,
	})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(98)
	}
	if role == "leaver session" {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return // the one in between has said the worker's id
	}
	fmt.Println("worker", pid)
}

// respawn keeps 50 workers, and starts another for each that ends.
func respawn() {
	signal.Ignore(syscall.SIGTERM)
	start := func() {
		_, _, err := syscall.StartProcess("/bin/sleep", []string{"sleep", "300"}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			os.Exit(97)
		}
	}
	for range 50 {
		start()
	}
	fmt.Println("ready")
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == nil {
			start()
		}
	}
}
func playHost(role []string)  {}
func playServe(role []string) {}
func playInit(role []string)  {}
