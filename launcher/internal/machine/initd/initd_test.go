package initd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
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

	"hotseat.dev/hotseat/launcher/internal/machine/initd"
	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// roleVariable makes this test binary be init, or serve when init runs it.
const roleVariable = "INITD_TEST_ROLE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(roleVariable); dir != "" && os.Getenv(initd.ExitDirEnv) != dir {
		beInit(dir)
	} else if dir != "" {
		beServe(os.Args[1:])
	}
	goleak.VerifyTestMain(m)
}

func beInit(dir string) {
	opts := initd.Options{
		Args: os.Args[1:], ExitDir: dir, Misconfigured: 78, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	stopsEngines(&opts)
	code, err := initd.Run(context.Background(), opts)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(97)
	}
	os.Exit(code)
}

// beServe says who it is, starts a child that outlives it when told so, and
// obeys: SIGTERM and SIGINT end it with the code in its first argument, the
// other signals are told. With a second argument it exits by itself.
func beServe(args []string) {
	init := initd.Parent()
	if init.IsLast() {
		runLast()
	}
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	code, _ := strconv.Atoi(args[0])
	if len(args) > 1 && args[1] == "orphan" {
		cmd := exec.CommandContext(context.Background(), "/bin/sleep", "300")
		_ = cmd.Start()
		fmt.Println("orphan", cmd.Process.Pid)
	}
	fmt.Println("serve", os.Getpid())
	if len(args) > 1 {
		failHow(init, args[1], code)
	}
	for sig := range told {
		fmt.Println("told", sig)
		if sig == syscall.SIGTERM || sig == syscall.SIGINT {
			if slices.Contains(args, "closes") {
				init.Closed()
			}
			os.Exit(code)
		}
	}
}

// running is an init under test.
type running struct {
	*exec.Cmd
	t     *testing.T
	dir   string
	lines *bufio.Reader
	log   bytes.Buffer // of init; complete when it has ended
}

func start(t *testing.T, serve ...string) *running {
	t.Helper()
	return startWith(t, append([]string{"/proc/self/exe"}, serve...)...)
}

func startWith(t *testing.T, argv ...string) *running {
	t.Helper()
	output, input, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, output.SetReadDeadline(time.Now().Add(patience.Wait())))
	r := &running{t: t, dir: filepath.Join(t.TempDir(), "exits"), lines: bufio.NewReader(output)}
	r.Cmd = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	r.Env = append(os.Environ(), roleVariable+"="+r.dir, "GORACE=atexit_sleep_ms=0")
	r.Stdout, r.Stderr = input, &r.log
	require.NoError(t, r.Start())
	require.NoError(t, input.Close())
	t.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait()
		output.Close()
	})
	return r
}

// says waits for a line of serve that begins with the word, and gives the rest of it.
func (r *running) says(word string) string {
	r.t.Helper()
	for {
		line, err := r.lines.ReadString('\n')
		require.NoError(r.t, err, "while waiting for %q", word)
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			return rest
		}
	}
}

func (r *running) saysPID(word string) int {
	r.t.Helper()
	pid, err := strconv.Atoi(r.says(word))
	require.NoError(r.t, err)
	return pid
}

func (r *running) ends(code int) {
	r.t.Helper()
	_ = r.Wait()
	require.Equal(r.t, code, r.ProcessState.ExitCode())
}

func TestServeIsStartedAgainWhenItWasKilled(t *testing.T) {
	r := start(t, "0")
	first := r.saysPID("serve")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	second := r.saysPID("serve")
	require.NotEqual(t, first, second)
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(0)
}

func TestServeIsStartedAgainWithPausesWhileItNeverBecomesReady(t *testing.T) {
	began := time.Now()
	r := start(t, "1", "exit")
	var pids []int
	for range 4 {
		pids = append(pids, r.saysPID("serve"))
	}
	slices.Sort(pids)
	require.Len(t, slices.Compact(pids), 4)
	require.Greater(t, time.Since(began), 700*time.Millisecond, "pauses of 100, 200 and 400 ms")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	_ = r.Wait() // with 0 in a pause, with 1 when serve ran
}

func TestInitEndsWithTheCodeOfAServeThatIsNotToBeStartedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		how  string
		ends int
	}{"done": {0, "exit", 0}, "an error in the configuration": {2, "misconfigured", 78}} {
		t.Run(name, func(t *testing.T) {
			r := start(t, strconv.Itoa(c.code), c.how)
			r.saysPID("serve")
			r.ends(c.ends)
		})
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	r := start(t, "0")
	r.saysPID("serve")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
		require.NoError(t, r.Process.Signal(sig))
		require.Equal(t, sig.String(), r.says("told"))
	}
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	require.Equal(t, syscall.SIGTERM.String(), r.says("told"))
	r.ends(0)
}

func TestAfterAForwardedSignalInitEndsWithTheCodeOfServeWhateverItIs(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			r := start(t, "5")
			r.saysPID("serve")
			require.NoError(t, r.Process.Signal(sig))
			r.ends(5)
		})
	}
	t.Run("killed after that", func(t *testing.T) {
		r := start(t, "5")
		serve := r.saysPID("serve")
		r.tell(serve)
		require.NoError(t, syscall.Kill(serve, syscall.SIGKILL))
		r.ends(128 + 9)
	})
}

// waitStopped waits until every thread of a process is stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		require.NoError(t, err)
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			if err != nil || !strings.Contains(string(text), "State:\tT") {
				return false
			}
		}
		return true
	}, patience.Wait(), time.Millisecond)
}

// waitForSignal waits until a signal is pending for a stopped process.
func waitForSignal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "ShdPnd:")
		mask, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
		require.NoError(t, err)
		return mask&(1<<(sig-1)) != 0
	}, patience.Wait(), time.Millisecond)
}

func TestOrphansAreReapedAndTheirExitsRecorded(t *testing.T) {
	bootID, err := procfs.BootID()
	require.NoError(t, err)
	r := start(t, "0", "orphan")
	orphan, serve := r.saysPID("orphan"), r.saysPID("serve")
	stat, err := procfs.Read(orphan)
	require.NoError(t, err)
	serveStat, err := procfs.Read(serve)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(serve, syscall.SIGKILL))
	second := r.saysPID("orphan") // of the next serve
	r.saysPID("serve")

	adopted, err := procfs.Read(orphan)
	require.NoError(t, err)
	require.Equal(t, r.Process.Pid, adopted.PPID, "init is its parent now")
	require.NoError(t, syscall.Kill(orphan, syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	defer cancel()
	entry, ok := exits.Await(ctx, r.dir, bootID, orphan, stat.StartTime)
	require.True(t, ok)
	require.Equal(t, -int(syscall.SIGTERM), entry.Code)
	_, err = procfs.Read(orphan)
	require.ErrorIs(t, err, os.ErrNotExist, "it was reaped before it was recorded")
	entry, ok = exits.Find(r.dir, bootID, serve, serveStat.StartTime)
	require.True(t, ok)
	require.Equal(t, -int(syscall.SIGKILL), entry.Code)

	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(0)
	stat, err = procfs.Read(second)
	require.NoError(t, err)
	require.True(t, stat.Alive(), "what serve leaves lives on when init ends")
	require.NoError(t, syscall.Kill(second, syscall.SIGKILL))
}

func TestAsTheFirstProcessOfAContainerInitDoesTheSame(t *testing.T) {
	unshare := []string{"/usr/bin/unshare", "--pid", "--fork", "--mount-proc"}
	probe := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "/bin/true")...)
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: this machine makes no process namespace: %v %s", err, out)
	}
	program, err := os.Executable()
	require.NoError(t, err)
	r := startWith(t, append(unshare, program, "0", "orphan")...)
	r.says("serve")
	init := onlyChild(t, r.Process.Pid)
	serve := onlyChild(t, init)
	orphan := onlyChild(t, serve)
	require.NoError(t, syscall.Kill(serve, syscall.SIGKILL))
	r.says("serve")
	stat, err := procfs.Read(orphan)
	require.NoError(t, err)
	require.Equal(t, init, stat.PPID)
	require.NoError(t, syscall.Kill(orphan, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, err := procfs.Read(orphan)
		return err != nil
	}, patience.Wait(), time.Millisecond, "the orphan is not reaped")
	require.NoError(t, syscall.Kill(init, syscall.SIGTERM))
	r.ends(0)
}

func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var found []string
	for _, file := range children {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found = append(found, strings.Fields(string(text))...)
	}
	require.Len(t, found, 1)
	child, err := strconv.Atoi(found[0])
	require.NoError(t, err)
	return child
}

func TestServeIsKilledWhenInitIs(t *testing.T) {
	r := start(t, "0")
	serve := r.saysPID("serve")
	require.NoError(t, r.Process.Kill())
	require.Eventually(t, func() bool {
		stat, err := procfs.Read(serve)
		return err != nil || !stat.Alive()
	}, patience.Wait(), time.Millisecond)
}

func TestServeHasAProcessGroupOfItsOwn(t *testing.T) {
	r := start(t, "0")
	serve := r.saysPID("serve")
	group, err := syscall.Getpgid(serve)
	require.NoError(t, err)
	require.Equal(t, serve, group)
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(0)
}

func TestTheEndOfTheContextEndsServe(t *testing.T) {
	t.Setenv(roleVariable, filepath.Join(t.TempDir(), "exits"))
	output, input, err := os.Pipe()
	require.NoError(t, err)
	defer output.Close()
	defer input.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		code, err := initd.Run(ctx, initd.Options{
			Args: []string{"6"}, ExitDir: os.Getenv(roleVariable), Logger: slog.New(slog.DiscardHandler), Stdout: input,
			StopsEngines: func() bool { return false },
		})
		if err != nil {
			code = -1
		}
		ended <- code
	}()
	r := &running{t: t, lines: bufio.NewReader(output)}
	r.saysPID("serve")
	cancel()
	require.Equal(t, 6, <-ended)
}

func TestAnExitFolderThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := initd.Run(t.Context(), initd.Options{ExitDir: filepath.Join(file, "exits"), Logger: slog.New(slog.DiscardHandler)})
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
