package initd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/initd"
)

// failHow makes serve end by itself in one of several ways.
func failHow(init *initd.Init, how string, code int) {
	switch how {
	case "exit":
		os.Exit(code)
	case "ready":
		init.Ready()
		os.Exit(code)
	case "misconfigured":
		init.Misconfigured()
		os.Exit(code)
	case "panic":
		panic("a defect of serve, whose exit code is 2 as well")
	}
}

// startsAgain insists that serve is run once more.
func startsAgain(t *testing.T, r *running, first int) {
	t.Helper()
	require.NotEqual(t, first, r.saysPID("serve"))
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	_ = r.Wait() // with 0 in a pause, with the code of serve when it ran
}

func TestServeIsStartedAgainAfterAPanicThoughItsExitCodeIs2(t *testing.T) {
	r := start(t, "2", "panic")
	startsAgain(t, r, r.saysPID("serve"))
}

func TestServeIsStartedAgainAfterSIGQUITThoughItsExitCodeIs2(t *testing.T) {
	r := start(t, "0")
	first := r.saysPID("serve")
	require.NoError(t, syscall.Kill(first, syscall.SIGQUIT))
	startsAgain(t, r, first)
}

func TestServeIsStartedAgainAfterExitCode2ThatDoesNotComeWithItsWord(t *testing.T) {
	r := start(t, "2", "exit")
	startsAgain(t, r, r.saysPID("serve"))
}

func TestAServeThatWasReadyIsStartedAgainWithoutAPauseHoweverOftenItDies(t *testing.T) {
	r := start(t, "1", "ready")
	for range 8 {
		r.says("serve")
	}
	require.NoError(t, r.Process.Signal(syscall.SIGTERM))
	_ = r.Wait()
	deaths := 0
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "serve ended unexpectedly") {
			require.Contains(t, line, "pause=0s")
			deaths++
		}
	}
	require.GreaterOrEqual(t, deaths, 7)
}

func TestAProcessThatNoInitRunsHasNone(t *testing.T) {
	require.Nil(t, initd.Parent())
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	t.Setenv("HOTSEAT_INIT_FD", strconv.Itoa(int(file.Fd())))
	require.Nil(t, initd.Parent(), "the descriptor is no pipe")
	_, left := os.LookupEnv("HOTSEAT_INIT_FD")
	require.False(t, left, "children of serve do not come to know of it")
	initd.Parent().Ready() // says nothing to nobody
}
