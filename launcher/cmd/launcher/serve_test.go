package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/doctor"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// serveFailing runs serve in a process of its own that is expected to end by itself.
func serveFailing(t *testing.T, args ...string) result {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "launcher"), append([]string{"serve", "--log-level", "error"}, args...)...)
	p := spawn(t, cmd)
	code := p.await()
	return result{code: code, err: p.log.text()}
}

func TestServeDoesNotStartWhereItCannotAndSaysWhatHelps(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	newer := filepath.Join(dir, "newer")
	ofNewer := filepath.Join(newer, "swaps", "s.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(ofNewer), 0o700))
	require.NoError(t, os.WriteFile(ofNewer, []byte(fileOfTheFuture), 0o600))
	older := filepath.Join(dir, "older")
	require.NoError(t, os.Mkdir(older, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(older, "journal"), nil, 0o600))
	held := startDaemon(t)
	engine := filepath.Join(bin, "enginesim")

	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"the address is taken":                  {[]string{"--listen", busy.Addr().String()}, []string{busy.Addr().String(), "--listen"}},
		"the address is not of this machine":    {[]string{"--listen", "192.0.2.1:80", "--insecure-public"}, []string{"192.0.2.1:80", "--listen"}},
		"the state folder is a file":            {[]string{"--state-dir", file}, []string{file, "--state-dir"}},
		"the state folder cannot be made":       {[]string{"--state-dir", "/proc/hotseat/state"}, []string{"/proc/hotseat", "--state-dir"}},
		"another launcher serves there":         {[]string{"--listen", strings.TrimPrefix(held.address, "http://")}, []string{"a launcher serves there already", "--listen"}},
		"another launcher has the state folder": {[]string{"--state-dir", held.stateDir}, []string{held.stateDir, "pid"}},
		"a newer program wrote its files":       {[]string{"--state-dir", newer}, []string{ofNewer, "newer program"}},
		"an older program wrote its files":      {[]string{"--state-dir", older}, []string{older, "earlier version", "--state-dir"}},
		"the GPUs are of no known kind":         {[]string{"--gpus", "many"}, []string{`"many"`, "simulated:N"}},
		"the list of GPUs is not there":         {[]string{"--gpus", "file:/no/such/gpus.json"}, []string{"/no/such/gpus.json"}},
		"the token file is not there":           {[]string{"--token-file", "/no/such/token"}, []string{"/no/such/token"}},
		"a client CA without TLS":               {[]string{"--client-ca", file}, []string{"--client-ca", "--tls-cert"}},
		"a certificate without a key":           {[]string{"--tls-cert", file}, []string{"--tls-cert and --tls-key", "give both"}},
		"a certificate that is none":            {[]string{"--tls-cert", file, "--tls-key", file}, []string{file, "--tls-cert"}},
		"the token file is empty":               {[]string{"--token-file", file}, []string{file, "empty"}},
	} {
		t.Run("because "+name, func(t *testing.T) {
			own := t.TempDir()
			args := append([]string{"--listen", "127.0.0.1:0", "--state-dir", filepath.Join(own, "state"), "--gpus", "simulated:2", "--vllm", engine}, c.args...)
			r := serveFailing(t, args...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
			for _, text := range c.says {
				require.Contains(t, r.err, text)
			}
		})
	}
	t.Run("and touches nothing of what it cannot read", func(t *testing.T) {
		content, err := os.ReadFile(ofNewer)
		require.NoError(t, err)
		require.Equal(t, fileOfTheFuture, string(content))
		held.do("ps") // the other launcher serves on
	})
}

// fileOfTheFuture has a form that this program does not know.
const fileOfTheFuture = `{"version":99,"record":{}}`

func TestTheEngineIsTheStandInOnlyForWantOfAVLLMAndThatIsSaidLoudly(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	args := []string{"--listen", "127.0.0.1:0", "--gpus", "simulated:1", "--state-dir"}
	t.Run("beside the launcher", func(t *testing.T) {
		d := spawn(t, exec.Command(filepath.Join(bin, "launcher"), append(append([]string{"serve"}, args...), t.TempDir())...))
		d.address = d.awaitServing(0)
		require.Contains(t, d.log.text(), "NO VLLM FOUND")
		require.Contains(t, d.log.text(), filepath.Join(bin, "enginesim"))
		d.do("run", "--gpu", "none", "--wait", "m")
	})
	t.Run("and without either serve does not start", func(t *testing.T) {
		alone := filepath.Join(t.TempDir(), "launcher")
		require.NoError(t, os.Link(filepath.Join(bin, "launcher"), alone))
		p := spawn(t, exec.Command(alone, append(append([]string{"serve"}, args...), t.TempDir())...))
		require.Equal(t, exitUsage, p.await())
		require.Contains(t, p.log.text(), "install vLLM, or name its program by --vllm")
		require.Equal(t, 1, strings.Count(p.log.text(), "\n"))
	})
}

func TestTheProgramOfTheEngineMayBeACommand(t *testing.T) {
	wrapper := filepath.Join(t.TempDir(), "with space", "wrapper")
	require.NoError(t, os.MkdirAll(filepath.Dir(wrapper), 0o700))
	require.NoError(t, os.WriteFile(wrapper, []byte("#!/bin/sh\necho \"wrapped: $1\"\nshift\nexec "+bin+"/enginesim \"$@\"\n"), 0o700))
	d := startDaemon(t, "--vllm", "'"+wrapper+"' 'two words'")
	d.do("run", "--gpu", "none", "--id", "a", "--wait", "m")
	require.Contains(t, d.do("logs", "a").out, "wrapped: two words\n")
}

func TestASignalEndsServeInOrder(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run("with exit code 0 and nothing left behind: "+name, func(t *testing.T) {
			d := startDaemon(t)
			d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
			engine := d.get("a").PID
			require.NoError(t, d.cmd.Process.Signal(sig))
			require.Equal(t, exitOK, d.await())
			require.False(t, alive(engine))
			require.Empty(t, processesWith(t, d.stateDir))
		})
	}
	t.Run("and leaves the engines when told so", func(t *testing.T) {
		d := startDaemon(t, "--on-exit", "leave")
		d.do("run", "--gpu", "none", "--id", "a", "--wait", "m")
		engine := d.get("a").PID
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, exitOK, d.await())
		require.True(t, alive(engine))
		next := startIn(t, d.stateDir, []string{"serve"})
		require.Equal(t, engine, next.get("a").PID, "the next launcher finds it")
	})
	t.Run("but not SIGHUP", func(t *testing.T) {
		d := startDaemon(t)
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGHUP))
		d.log.awaitText(t, "reading the models of the configuration again")
		d.do("ps")
	})
}

func TestASecondSignalEndsServeAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		second syscall.Signal
		code   int
	}{"SIGINT": {syscall.SIGINT, 130}, "SIGTERM": {syscall.SIGTERM, 143}} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t, "--stop-grace", "1h")
			d.do("run", "--gpu", "none", "--id", "a", "--wait", "m", "--sim-ignore-term=true")
			engine := d.get("a").PID
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
			d.log.awaitText(t, "a signal more than a second from now")
			require.Eventually(t, func() bool { // those that come together with the first do nothing
				_ = d.cmd.Process.Signal(c.second)
				return len(d.code) > 0
			}, patience.Wait(), 50*time.Millisecond)
			require.Equal(t, c.code, d.await())
			d.log.awaitText(t, "the engines are left")
			require.True(t, alive(engine))
			startIn(t, d.stateDir, []string{"serve"}, "--stop-grace", "1ms") // ends the engine with itself
		})
	}
}

func TestSignalsThatComeTogetherAreOne(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "none", "--id", "a", "--wait", "m")
	engine := d.get("a").PID
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT} {
		require.NoError(t, d.cmd.Process.Signal(sig))
	}
	require.Equal(t, 0, d.await())
	require.False(t, alive(engine))
}

func TestTheLogOfServeCanBeJSON(t *testing.T) {
	d := spawn(t, exec.Command(filepath.Join(bin, "launcher"), "serve", "--log-format", "json", "--listen", "127.0.0.1:0",
		"--gpus", "simulated:1", "--state-dir", t.TempDir(), "--vllm", filepath.Join(bin, "enginesim")))
	d.log.awaitText(t, "launcher is serving")
	for line := range strings.Lines(d.log.text()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func TestSettingsComeFromTheEnvironmentAndTheFileToo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hotseat.yaml")
	require.NoError(t, os.WriteFile(file, []byte("gpus: simulated:3\nbudgets:\n  max_instances: 7\n"), 0o600))
	t.Setenv("HOTSEAT_CONFIG", file)
	t.Setenv("HOTSEAT_BUDGETS_MAX_SLEEPERS_PER_GPU", "2")
	t.Setenv("HOTSEAT_LISTEN", "127.0.0.1:0")
	d := spawn(t, exec.Command(filepath.Join(bin, "launcher"), "serve", "--state-dir", filepath.Join(dir, "state"), "--vllm", filepath.Join(bin, "enginesim")))
	d.address = d.awaitServing(0)
	out := d.do("gpus", "-o", "json").out
	require.Contains(t, out, `"max_instances": 7`)
	require.Contains(t, out, `"max_sleepers_per_gpu": 2`)
	require.Equal(t, 3, strings.Count(out, `"uuid"`))
}

func TestInit(t *testing.T) {
	t.Run("runs serve again at once when it is killed, and the models live", func(t *testing.T) {
		d := startIn(t, t.TempDir(), []string{"init", "--", "serve"})
		d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
		engine := d.get("a").PID
		require.NoError(t, syscall.Kill(serveBelow(t, d), syscall.SIGKILL))
		d.address = d.awaitServing(1)
		require.Equal(t, engine, d.get("a").PID)
		require.Equal(t, "awake", d.get("a").State)
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, exitOK, d.await())
		require.False(t, alive(engine))
		require.Empty(t, processesWith(t, d.stateDir))
	})
	t.Run("does not run serve again when its configuration is at fault", func(t *testing.T) {
		p := spawn(t, exec.Command(filepath.Join(bin, "launcher"), "init", "--", "serve", "--listen", "127.0.0.1:0",
			"--state-dir", t.TempDir(), "--gpus", "simulated:2", "--vllm", "/no/such/vllm"))
		require.Equal(t, exitUsage, p.await())
		require.Equal(t, 1, strings.Count(p.log.text(), "launcher: cannot find the program"), p.log.text())
	})
	t.Run("says that the state folder cannot be used", func(t *testing.T) {
		p := spawn(t, exec.Command(filepath.Join(bin, "launcher"), "init", "--", "serve", "--state-dir", "/proc/hotseat"))
		require.Equal(t, exitUsage, p.await())
		require.Contains(t, p.log.text(), "--state-dir")
	})
}

// serveBelow gives the process of serve that init runs.
func serveBelow(t *testing.T, init *daemonProcess) int {
	t.Helper()
	for _, pid := range processesWith(t, "serve\x00--listen\x00") {
		content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && strings.Contains(string(content), init.stateDir) && pid != init.cmd.Process.Pid {
			return pid
		}
	}
	require.Fail(t, "there is no serve")
	return 0
}

func TestDoctor(t *testing.T) {
	engine := filepath.Join(bin, "enginesim")
	good := []string{"doctor", "--listen", "127.0.0.1:0", "--gpus", "simulated:2", "--state-dir", t.TempDir(), "--vllm", engine}

	t.Run("says line by line what it found", func(t *testing.T) {
		r := call(t, good...)
		require.Regexp(t, `(?m)^ok    vllm           `+engine+`, version `, r.out)
		require.Regexp(t, `(?m)^ok    address        127\.0\.0\.1:0 is free$`, r.out)
		require.Empty(t, r.err)
	})
	t.Run("fails with exit code 1 when something will not work, with the way out below it", func(t *testing.T) {
		r := call(t, append(good, "--vllm", "/no/such/vllm")...)
		require.Equal(t, exitFailed, r.code)
		require.Regexp(t, `(?m)^fail  vllm .*/no/such/vllm.*\n +→ install vLLM`, r.out)
		require.Empty(t, r.err)
	})
	t.Run("shows the characters that a terminal would obey", func(t *testing.T) {
		r := call(t, append(good, "--vllm", "/no/\x1b[2J\x1b]0;x\a\r\u202evllm")...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.out, `/no/\x1b[2J\x1b]0;x\a\r\u202evllm`)
		require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f\u202e]", r.out)
	})
	t.Run("gives the same as JSON", func(t *testing.T) {
		r := call(t, append(good, "-o", "json")...)
		var report doctor.Report
		require.NoError(t, json.Unmarshal([]byte(r.out), &report))
		require.Len(t, report.Checks, 13)
		require.Equal(t, r.code == exitFailed, report.Status == doctor.Fail)
	})
	t.Run("finds a launcher that runs", func(t *testing.T) {
		d := startDaemon(t)
		r := call(t, append(good, "--listen", d.address)...)
		require.Contains(t, r.out, "a launcher answers at "+d.address)
	})
}

func TestASwapWhoseClientIsInterruptedIsFinished(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
	swapping := spawnClient(t, d, "swap", "--gpu", "0", "--id", "b", "--", "m", "--sim-load-time", "1s")
	swapping.log.awaitText(t, "start b")
	require.NoError(t, swapping.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, swapping.await())
	require.Eventually(t, func() bool { return d.get("b").State == "awake" }, patience.Wait(), 20*time.Millisecond)
	require.Equal(t, "sleeping", d.get("a").State)
}
