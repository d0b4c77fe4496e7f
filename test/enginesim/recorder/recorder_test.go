package recorder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asWorker makes the test binary a worker that does what its input says.
const asWorker = "RECORDER_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asWorker); dir != "" {
		os.Exit(beWorker(dir))
	}
	goleak.VerifyTestMain(m)
}

func beWorker(dir string) int {
	share, _ := strconv.ParseFloat(os.Args[1], 64)
	r, err := New(Options{Dir: dir, GPU: "gpu", Engine: os.Getppid(), Model: os.Args[2], Share: share})
	in := bufio.NewScanner(os.Stdin)
	for err == nil && in.Scan() {
		switch in.Text() {
		case "awake":
			err = r.Awake(func() error { return nil })
		case "asleep":
			err = r.Asleep()
		}
		fmt.Println("done", err)
	}
	return 0
}

// worker is such a process.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end func()
}

func start(t *testing.T, dir, model string, share float64) *worker {
	t.Helper()
	w := &worker{t: t, cmd: exec.CommandContext(context.Background(), os.Args[0], strconv.FormatFloat(share, 'f', -1, 64), model)}
	w.cmd.Env = append(os.Environ(), asWorker+"="+dir, "GORACE=atexit_sleep_ms=0")
	var err error
	w.in, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.out = bufio.NewReader(out)
	require.NoError(t, w.cmd.Start())
	w.end = sync.OnceFunc(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	t.Cleanup(w.end)
	return w
}

func (w *worker) do(what string) *worker {
	w.t.Helper()
	_, err := fmt.Fprintln(w.in, what)
	require.NoError(w.t, err)
	line, err := w.out.ReadString('\n')
	require.NoError(w.t, err)
	require.Equal(w.t, "done <nil>\n", line)
	return w
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "gpu"), 0o755))
	return dir
}

func kinds(t *testing.T, dir string) []Kind {
	t.Helper()
	events, err := Events(dir)
	require.NoError(t, err)
	var list []Kind
	for _, e := range events {
		list = append(list, e.Kind)
	}
	return list
}

func TestTwoWorkersAwakeOnOneGPUAreAnOverlap(t *testing.T) {
	dir := folder(t)
	a := start(t, dir, "a", 0.9).do("awake")
	b := start(t, dir, "b", 0.9).do("awake")
	require.Equal(t, []Kind{Awake, Overlap}, kinds(t, dir))
	overlaps, err := Overlaps(dir)
	require.NoError(t, err)
	require.Len(t, overlaps, 1)
	require.Equal(t, "b", overlaps[0].Model)
	require.Equal(t, b.cmd.Process.Pid, overlaps[0].PID)
	require.Equal(t, a.cmd.Process.Pid, overlaps[0].Others[0].PID)
	require.Equal(t, os.Getpid(), overlaps[0].Engine)
}

func TestOneAfterTheOtherIsNoOverlap(t *testing.T) {
	dir := folder(t)
	a, b := start(t, dir, "a", 0.9).do("awake").do("asleep"), start(t, dir, "b", 0.9)
	b.do("awake").do("asleep")
	a.do("awake")
	require.Equal(t, []Kind{Awake, Asleep, Awake, Asleep, Awake}, kinds(t, dir))
}

func TestAWorkerThatDiedIsNotAwake(t *testing.T) {
	dir := folder(t)
	start(t, dir, "a", 0.9).do("awake").end()
	start(t, dir, "b", 0.9).do("awake")
	require.Equal(t, []Kind{Awake, Awake}, kinds(t, dir))
}

func TestAWorkerThatDiesBeforeItsMemoryIsTakenIsNotAwake(t *testing.T) {
	dir := folder(t)
	a := start(t, dir, "a", 0.9).do("awake")
	b, err := New(Options{Dir: dir, GPU: "gpu", Share: 0.9})
	require.NoError(t, err)
	require.NoError(t, b.Awake(func() error { a.end(); return nil }))
	require.Equal(t, []Kind{Awake, Awake}, kinds(t, dir))
}

func TestAWorkerIsNotBesideItself(t *testing.T) {
	dir := folder(t)
	start(t, dir, "a", 0.9).do("awake").do("awake")
	require.Equal(t, []Kind{Awake, Awake}, kinds(t, dir))
}

func TestSharesThatFitAreAllowedUntilOneDoesNot(t *testing.T) {
	dir := folder(t)
	start(t, dir, "a", 0.3).do("awake")
	start(t, dir, "b", 0.7).do("awake")
	start(t, dir, "c", 0.1).do("awake")
	require.Equal(t, []Kind{Awake, Shared, Overlap}, kinds(t, dir))
	overlaps, err := Overlaps(dir)
	require.NoError(t, err)
	require.Len(t, overlaps[0].Others, 2)
}

func TestMemoryThatCouldNotBeTakenIsNoWake(t *testing.T) {
	dir := folder(t)
	r, err := New(Options{Dir: dir, GPU: "gpu", Share: 0.9})
	require.NoError(t, err)
	full := errors.New("full")
	require.ErrorIs(t, r.Awake(func() error { return full }), full)
	start(t, dir, "b", 0.9).do("awake")
	require.Equal(t, []Kind{Awake}, kinds(t, dir))
}

func TestEventsAtOnceStandEachInALineOfItsOwn(t *testing.T) {
	dir := folder(t)
	var wg sync.WaitGroup
	for i := range 8 {
		w := start(t, dir, fmt.Sprint(i), 0.9)
		wg.Go(func() {
			for range 10 {
				w.do("awake").do("asleep")
			}
		})
	}
	wg.Wait()
	events, err := Events(dir)
	require.NoError(t, err)
	require.Len(t, events, 160)
}

func TestNoRecordIsNoEvents(t *testing.T) {
	events, err := Events(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, events)
}

func TestARecordThatIsDamagedIsAnErrorThatNamesTheLine(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "awake.log"), []byte("{\"kind\":\"awake\"}\n{oops\n"), 0o600))
	_, err := Events(dir)
	require.ErrorContains(t, err, "line 2 of awake.log")
}
