package initd_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/initd"
)

// lastVariable says how the last run of serve goes: it ends, or waits, for a limit that is
// short or long. Without the variable there is no last run.
const lastVariable = "INITD_TEST_LAST"

// stopsEngines sets the options of init that lastVariable asks for.
func stopsEngines(opts *initd.Options) {
	how := os.Getenv(lastVariable)
	opts.StopsEngines = func() bool { return how != "" }
	if opts.LastTime = time.Hour; how == "waits too long" {
		opts.LastTime = 50 * time.Millisecond
	}
}

// runLast is serve in its last run.
func runLast() {
	fmt.Println("last", os.Getpid())
	if os.Getenv(lastVariable) != "ends" {
		select {}
	}
	os.Exit(0)
}

// tell sends SIGTERM to init, and returns after init has forwarded it to serve, which stands still.
func (r *running) tell(serve int) {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(serve, syscall.SIGSTOP))
	waitStopped(r.t, serve)
	require.NoError(r.t, r.Process.Signal(syscall.SIGTERM))
	waitForSignal(r.t, serve, syscall.SIGTERM)
}

func TestServeRunsALastTimeWhenItWasDown(t *testing.T) {
	t.Setenv(lastVariable, "ends")
	r := start(t, "1", "exit")
	for range 5 { // from now on there are pauses of almost a second
		r.says("serve")
	}
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.says("last")
	r.ends(0)
}

func TestServeRunsALastTimeWhenItDiedBeforeItWasDone(t *testing.T) {
	t.Setenv(lastVariable, "ends")
	t.Run("by a signal", func(t *testing.T) {
		r := start(t, "5")
		serve := r.saysPID("serve")
		r.tell(serve)
		require.NoError(t, syscall.Kill(serve, syscall.SIGKILL))
		r.says("last")
		r.ends(0)
	})
	t.Run("by an exit", func(t *testing.T) {
		r := start(t, "5")
		r.saysPID("serve")
		require.NoError(t, r.Process.Signal(syscall.SIGTERM))
		r.says("last")
		r.ends(0)
	})
}

func TestServeThatHasClosedDoesNotRunALastTime(t *testing.T) {
	t.Setenv(lastVariable, "ends")
	r := start(t, "5", "closes")
	r.saysPID("serve")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(5)
	require.NotContains(t, r.log.String(), "a last time")
}

func TestLastRunOfServeIsLimited(t *testing.T) {
	t.Setenv(lastVariable, "waits too long")
	r := start(t, "5")
	r.saysPID("serve")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(128 + 9)
	require.Equal(t, 1, strings.Count(r.log.String(), "a last time"))
}

func TestSignalsReachTheLastRunOfServe(t *testing.T) {
	t.Setenv(lastVariable, "waits")
	r := start(t, "5")
	r.saysPID("serve")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.says("last")
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	r.ends(128 + 15)
}
