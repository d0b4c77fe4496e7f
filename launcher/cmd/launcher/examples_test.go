package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// tour prepares a run of examples/tour.sh with a folder for its leavings.
func tour(t *testing.T, mode string) (cmd *exec.Cmd, listen, tmp string) {
	t.Helper()
	listen, err := harness.FreeAddress()
	require.NoError(t, err)
	door, err := harness.FreeAddress()
	require.NoError(t, err)
	tmp = t.TempDir()
	cmd = exec.Command("/bin/sh", "-c", "exec bash ../../../examples/tour.sh >&2")
	cmd.Env = append(os.Environ(), "ENGINE=enginesim", "TOUR="+mode, "BIN="+bin, "HOTSEAT_LISTEN="+listen, "HOTSEAT_FRONT_DOOR="+door, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, listen, tmp
}

func requireNothingLeft(t *testing.T, listen, tmp string) {
	t.Helper()
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, processesWith(t, tmp))
	_, err = net.Dial("tcp", listen)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestTourComparesASwapWithAStartByHand(t *testing.T) {
	cmd, listen, tmp := tour(t, "only")
	p := spawn(t, cmd)
	require.Equal(t, 0, p.await())
	said := p.log.text()
	for _, line := range []string{
		`The engine is a stand-in for vLLM, which computes nothing and takes \d+ms to load\.`,
		`up, with pid \d+`,
		` +\d+ ms  a is starting`,
		` +\d+ ms  a is awake`,
		`a answers after \d+ ms: a [a-z ]+`,
		`  healthy  b +[\d.]+ ms`,
		`b answers after \d+ ms: b [a-z ]+`,
		`== Ask a, which sleeps, at the same address: it wakes because you ask`,
		`\$ kill -9 \d+   # the launcher`,
		`b was started in [\d.]+ s, a was woken and has answered in [\d.]+ s; by hand it takes [\d.]+ s to end one and start the other\.`,
		`The engine was a stand-in .*`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", said)
	}
	killed := regexp.MustCompile(`the launcher is back after \d+ ms, with pid (\d+); a had pid (\d+) and has (\d+)`).FindStringSubmatch(said)
	require.NotNil(t, killed, said)
	require.Equal(t, killed[2], killed[3], "the model is the same process")
	require.NotContains(t, said, "with pid "+killed[1]+"\n\n== Create", "the launcher is another process")
	require.NotContains(t, said, "--sim-", "readers copy the calls for a real vLLM")
	requireNothingLeft(t, listen, tmp)
}

func TestTheTourStaysUpUntilCtrlCAndLeavesNothing(t *testing.T) {
	cmd, listen, tmp := tour(t, "stay")
	p := spawn(t, cmd)
	p.log.awaitText(t, "press Ctrl-C")
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT), "as a terminal does, to the whole group")
	require.Equal(t, 0, p.await())
	requireNothingLeft(t, listen, tmp)
}

// holdWalk has the walk of a tour wait without end for the answer to its DELETE, which
// comes after all the moments of TestInterruptedTourLeavesNothing: else a walk can be
// over before the test interrupts it. No server accepts the connection of that call.
func holdWalk(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	curl, err := exec.LookPath("curl")
	require.NoError(t, err)
	folder := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' -X DELETE '*) set -- -sS http://%s ;; esac\nexec %s \"$@\"\n", silent.Addr(), curl)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "curl"), []byte(script), 0o755))
	cmd.Env = append(cmd.Env, "PATH="+folder+":"+os.Getenv("PATH"))
}

func TestInterruptedTourLeavesNothing(t *testing.T) {
	for _, moment := range []string{"$ ", "a is starting", "== Ask a, which sleeps", "$ kill -9", "the launcher is back"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			cmd, listen, tmp := tour(t, "only")
			holdWalk(t, cmd)
			p := spawn(t, cmd)
			p.log.awaitText(t, moment)
			require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
			require.Equal(t, 130, p.await())
			requireNothingLeft(t, listen, tmp)
		})
	}
}

func TestTheTourFailsClearlyWhereItsAddressIsTaken(t *testing.T) {
	cmd, listen, _ := tour(t, "only")
	l, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	defer l.Close()
	p := spawn(t, cmd)
	require.Equal(t, 1, p.await())
	require.Contains(t, p.log.text(), "something listens at "+listen+" already")
}

func TestTheSwapExampleRunsAsItStands(t *testing.T) {
	d := startDaemon(t)
	cmd := exec.Command("bash", "../../../examples/swap.sh")
	cmd.Env = append(os.Environ(), "HOTSEAT_SERVER=http://"+d.address)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, 3, strings.Count(string(out), `"outcome":"done"`), string(out))
	require.Contains(t, string(out), `"total_stopped":2`)
}

func TestTheExamplesAreScriptsThatBashCanRead(t *testing.T) {
	scripts, err := filepath.Glob("../../../examples/*.sh")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		out, err := exec.Command("bash", "-n", script).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestTourRefusesAnUnknownMode(t *testing.T) {
	cmd := exec.Command("bash", "../../../examples/tour.sh")
	cmd.Env = append(os.Environ(), "ENGINE=enginesim", "TOUR=ever")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "tour: TOUR=ever: it is stay (stay up after the walk) or only (end after it)\n", string(out))
}
