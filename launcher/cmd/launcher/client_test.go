package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
)

func TestTheCommandsAgainstALauncher(t *testing.T) {
	d := startDaemon(t)

	t.Run("run --wait tells of the start and names the instance", func(t *testing.T) {
		r := d.do("run", "--gpu", "0", "--id", "a", "--env", "A=1", "--wait", "--", "m", "--sim-load-time", "50ms")
		require.Equal(t, "a\n", r.out)
		require.Regexp(t, `^ +\d+\.\d{3}s  a is starting\n +\d+\.\d{3}s  a is awake\n$`, r.err)
		require.Equal(t, []string{"GPU-00000000-0000-0000-0000-000000000000"}, d.get("a").GPUUUIDs)
		require.Equal(t, "1", d.get("a").EnvVars["A"].Value)
	})
	t.Run("run without -- gives the engine everything from the model on", func(t *testing.T) {
		d.do("run", "--gpu", "1", "--id", "c", "--wait", "m", "--served-model-name", "x")
		require.Equal(t, []string{"m", "--served-model-name", "x"}, d.get("c").Args)
	})
	t.Run("run without an id takes the one that the launcher makes", func(t *testing.T) {
		var i launcherapi.Instance
		require.NoError(t, json.Unmarshal([]byte(d.do("run", "--gpu", "none", "-o", "json", "m").out), &i))
		require.NotEmpty(t, i.InstanceID)
		require.Equal(t, "starting", i.State)
		require.Equal(t, i.InstanceID+"\n", d.do("stop", i.InstanceID).out)
	})
	t.Run("an id that is taken is exit code 1 with the launcher's words", func(t *testing.T) {
		r := d.call("run", "--gpu", "none", "--id", "a", "m")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "launcher: ")
		require.Contains(t, r.err, "a")
		require.Empty(t, r.out)
	})
	t.Run("a GPU that is not there is exit code 1 and names those that are", func(t *testing.T) {
		r := d.call("run", "--gpu", "9", "m")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "0 (GPU-00000000-0000-0000-0000-000000000000)")
	})
	t.Run("run without a terminal does not wait unless it is told to", func(t *testing.T) {
		require.Equal(t, "d\n", d.do("run", "--gpu", "none", "--id", "d", "m", "--sim-hang-at-load", "always").out)
		require.Equal(t, "starting", d.get("d").State)
		d.do("stop", "d")
	})
	t.Run("connection flags may stand before the command", func(t *testing.T) {
		require.Equal(t, exitOK, call(t, "--server", d.address, "ps").code)
	})
	t.Run("ps shows instances to people", func(t *testing.T) {
		require.Regexp(t, `^ID +MODEL +STATE +GPUS +PORT +PID +START +IN FLIGHT +AGE\na +m +awake +0 +\d+ +\d+ +exec +0 +\d+s\nc +m +awake +1 `, d.do("ps").out)
	})
	t.Run("ps -o json is the API's document", func(t *testing.T) {
		requireSameDocument(t, d, "/v2/vllm/instances", d.do("ps", "-o", "json").out)
	})
	t.Run("gpus -o json is the API's document", func(t *testing.T) {
		requireSameDocument(t, d, "/v2/gpus", d.do("gpus", "-o", "json").out)
	})
	t.Run("preloaders says why there is none", func(t *testing.T) {
		require.Regexp(t, `^none: \S+enginesim is not a Python script`, d.do("preloaders").out)
		requireSameDocument(t, d, "/v2/vllm/preloaders", d.do("preloaders", "-o", "json").out)
	})
	t.Run("gpus shows who holds what", func(t *testing.T) {
		require.Regexp(t, `0 +GPU-\S+ +Simulated GPU 80GiB +80\.0 GiB .* a \(~?\d+\.\d GiB\) +-`, d.do("gpus").out)
	})
	t.Run("get describes one instance", func(t *testing.T) {
		out := d.do("get", "a").out
		require.Regexp(t, `(?m)^ID: +a\nModel: +m\nServed as: +m\nState: +awake for \d+s\n`, out)
		require.Regexp(t, `(?m)^GPUs: +0$`, out)
		require.Regexp(t, `(?m)^Address: +http://127\.0\.0\.1:\d+$`, out)
		require.Regexp(t, `(?m)^Process: +\d+, started by exec$`, out)
		require.Regexp(t, `(?m)^Command line: +m --sim-load-time 50ms$`, out)
		require.Regexp(t, `(?m)^Environment: +A=1$`, out)
		require.NotContains(t, out, "Exit code")
	})
	t.Run("get -o json is the API's document", func(t *testing.T) {
		requireSameDocument(t, d, "/v2/vllm/instances/a", d.do("get", "a", "-o", "json").out)
	})
	t.Run("swap with a command line starts a new one, a line for each phase", func(t *testing.T) {
		r := d.do("swap", "--gpu", "0", "--id", "b", "--canary", "--", "m")
		require.Regexp(t, `^b is awake; a is sleeping \(.*\)\n$`, r.out)
		for _, phase := range []string{"admit", "drain a", "sleep a", "start b", "healthy b", "canary b", "open b"} {
			require.Regexp(t, `s  `+phase+`: \d`, r.err)
		}
	})
	t.Run("where somebody is awake already, run and wake point to swap", func(t *testing.T) {
		for line, says := range map[string]string{
			"run --gpu 0 --id late m":  "b \\(awake\\) holds .*; use launcher swap in place of run ",
			"wake a":                   "b \\(awake\\) holds .*; use launcher swap a ",
			"swap --gpu 0 --id a -- m": "; launcher swap a wakes it",
		} {
			r := d.call(strings.Fields(line)...)
			require.Equal(t, exitFailed, r.code, line)
			require.Regexp(t, says, r.err)
		}
	})
	t.Run("swap with an id wakes it, and a dry run touches nothing", func(t *testing.T) {
		require.Equal(t, "it fits: a would be awake, and not b\n", d.do("swap", "--dry-run", "a").out)
		require.Equal(t, "awake", d.get("b").State)
		require.Regexp(t, `^a is awake; b is sleeping`, d.do("swap", "a", "--level", "2", "--timeout", "60", "--drain-timeout", "1s").out)
		require.Equal(t, 2, d.get("b").SleepLevel)
	})
	t.Run("swap -o json is the result", func(t *testing.T) {
		var result launcherapi.SwapResult
		require.NoError(t, json.Unmarshal([]byte(d.do("swap", "-o", "json", "b").out), &result))
		require.Equal(t, launcherapi.OutcomeDone, result.Outcome)
		require.Equal(t, "b", result.In.InstanceID)
	})
	t.Run("swaps lists them, and follows one that is over to its result", func(t *testing.T) {
		require.Regexp(t, `^SWAP +IN +GPUS +STATE +PHASE +AGE +OUTCOME\n\S+ +b +0 +over +- +\d+s +done\n`, d.do("swaps").out)
		requireSameDocument(t, d, "/v2/swaps", d.do("swaps", "-o", "json").out)
		id := strings.Fields(d.do("swaps").out)[7]
		r := d.do("swaps", id)
		require.Regexp(t, `^b is awake; a is sleeping \(.*\)\n$`, r.out)
		require.Contains(t, r.err, "healthy b: ")
		require.Contains(t, d.call("swaps", "--cancel", id).err, "it is over")
		require.Contains(t, d.call("swaps", "nothing").err, "no swap has the id nothing")
		require.Equal(t, exitUsage, d.call("swaps", "--cancel").code)
		require.Equal(t, exitUsage, d.call("swaps", "--cancel", "").code)
	})
	t.Run("a swap that fails is exit code 1 with the cause, the log, and what was undone", func(t *testing.T) {
		r := d.call("swap", "--gpu", "0", "--id", "bad", "--", "m", "--sim-oom")
		require.Equal(t, exitFailed, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.err, "  cause: out_of_device_memory\n  exit code: 1\n  the last lines of its log:\n  | ")
		require.Contains(t, r.err, "  undone: b is awake\n")
		require.Equal(t, "awake", d.get("b").State)
	})
	t.Run("swap with GPUs alone makes room", func(t *testing.T) {
		require.Regexp(t, `^no instance is awake; b is sleeping`, d.do("swap", "--gpu", "0").out)
	})
	t.Run("wake and sleep tell of the way", func(t *testing.T) {
		require.Equal(t, "a is awake\n", d.do("wake", "a").out)
		r := d.do("sleep", "--level", "1", "a")
		require.Equal(t, "a is sleeping\n", r.out)
		require.Contains(t, r.err, "s  a is sleeping\n")
	})
	t.Run("an id that does not exist is exit code 1, with what there is and what is nearest", func(t *testing.T) {
		for _, command := range []string{"sleep", "wake", "stop", "logs", "get", "wait", "chat", "swap"} {
			r := d.call(command, "aa")
			require.Equal(t, exitFailed, r.code, command)
			require.Contains(t, r.err, `launcher: no instance "aa"; there are: a, c, b; did you mean a?`, command)
		}
		require.Contains(t, d.call("get", "nobody").err, "there are: a, c, b\n", "nothing is near")
		require.Contains(t, d.call("get", "x").err, "did you mean c?", "c serves a model of that name")
	})
	t.Run("a start that fails is exit code 1 with the cause and the log", func(t *testing.T) {
		r := d.call("run", "--gpu", "none", "--id", "oom", "--wait", "m", "--sim-oom")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "launcher: oom is failed: ")
		require.Contains(t, r.err, "  cause: out_of_device_memory\n")
		require.Contains(t, r.err, "torch.OutOfMemoryError")
	})
	t.Run("run without --gpu is refused where there are GPUs", func(t *testing.T) {
		r := d.call("run", "--id", "everywhere", "m")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "give --gpu 0, --gpu all, or --gpu none")
		require.NotContains(t, d.do("ps").out, "everywhere")
	})
	t.Run("run --gpu all takes every GPU, and --gpu none takes none", func(t *testing.T) {
		d.do("run", "--gpu", "all", "--id", "all", "m", "--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.01", "--sim-hang-at-load", "always")
		require.Len(t, d.get("all").GPUUUIDs, 2)
		d.do("run", "--gpu", "none", "--id", "none", "--wait", "m")
		require.Empty(t, d.get("none").GPUUUIDs)
		require.NotContains(t, d.do("gpus").out, "none (")
		d.do("stop", "all", "none")
	})
	t.Run("stop names what it stopped, and goes on after a failure", func(t *testing.T) {
		r := d.call("stop", "b", "nobody", "c")
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "b\nc\n", r.out)
		require.Contains(t, r.err, "nobody")
	})
	t.Run("stop --all -o json is the API's document", func(t *testing.T) {
		var list launcherapi.StoppedList
		r := d.do("stop", "--all", "-o", "json")
		require.Contains(t, r.err, "a is stopped, and gone")
		require.Contains(t, r.err, "oom, which had failed, is gone")
		require.NoError(t, json.Unmarshal([]byte(r.out), &list))
		require.Equal(t, "all_stopped", list.Status)
		require.Contains(t, ids(list.StoppedInstances), "a")
		require.Regexp(t, `^ID +MODEL +STATE[^\n]*\n$`, d.do("ps").out)
	})
}

// requireSameDocument compares with what the API itself answers, numbers that
// change by themselves left out.
func requireSameDocument(t *testing.T, d *daemonProcess, path, got string) {
	t.Helper()
	resp, err := http.Get("http://" + d.address + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	var want, have any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&want))
	require.NoError(t, json.Unmarshal([]byte(got), &have))
	require.Equal(t, want, have)
	http.DefaultClient.CloseIdleConnections()
}

func TestLogs(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "none", "--id", "a", "--wait", "m", "--sim-log-lines", "10000")
	whole := d.do("logs", "a").out
	require.Greater(t, len(whole), 2*tailChunk, "the log is to be longer than what is looked at at once")
	all := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")

	t.Run("are whole", func(t *testing.T) {
		onDisk, err := os.ReadFile(filepath.Join(d.stateDir, "logs", d.get("a").LogName))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(onDisk), whole))
	})
	t.Run("end where --tail says", func(t *testing.T) {
		for _, n := range []int{0, 1, 2, 4000, len(all), len(all) + 1} {
			got := d.do("logs", "--tail", strconv.Itoa(n), "a").out
			want := strings.TrimSuffix(strings.Join(all[max(0, len(all)-n):], ""), "\n")
			require.Equal(t, want, strings.TrimSuffix(got, "\n"), n)
		}
	})
	t.Run("go on with -f until the instance has ended", func(t *testing.T) {
		follower := spawnClient(t, d, "logs", "-f", "--tail", "1", "a")
		follower.log.await(t, func(all string) bool { return all != "" })
		d.do("stop", "a")
		require.Equal(t, exitOK, follower.await())
	})
	t.Run("of one that is not there are exit code 1", func(t *testing.T) {
		r := d.call("logs", "--tail", "3", "nobody")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "nobody")
	})
}

// spawnClient runs a client command in a process of its own, with its standard
// output where standard error goes.
func spawnClient(t *testing.T, d *daemonProcess, args ...string) *daemonProcess {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$0" "$@" >&2`, filepath.Join(bin, "launcher")}, args...)...)
	cmd.Env = append(os.Environ(), envServer+"="+d.address)
	return spawn(t, cmd)
}

func TestACommandThatIsInterruptedSaysSoAndWhatItAskedForGoesOn(t *testing.T) {
	d := startDaemon(t)
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
	}{"sigint": {syscall.SIGINT, 130}, "sigterm": {syscall.SIGTERM, 143}} {
		t.Run(name, func(t *testing.T) {
			waiting := spawnClient(t, d, "run", "--gpu", "none", "--id", name, "--wait", "m", "--gpu-memory-utilization", "0.3", "--sim-hang-at-load", "always")
			waiting.log.awaitText(t, name+" is starting")
			require.NoError(t, waiting.cmd.Process.Signal(c.signal))
			require.Equal(t, c.code, waiting.await())
			require.Contains(t, waiting.log.text(), "interrupted; the launcher continues with the request")
			require.Equal(t, "starting", d.get(name).State)
		})
	}
}

func TestALauncherThatCannotBeReachedIsExitCode1AndSaysWhereItWasLookedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	for _, command := range []string{"ps", "gpus", "run m", "swap a", "sleep a", "wake a", "get a", "wait a", "chat a -- x", "stop a", "stop --all", "logs a", "logs -f --tail 1 a"} {
		t.Setenv(envServer, address)
		r := call(t, strings.Fields(command)...)
		require.Equal(t, exitFailed, r.code, command)
		require.Contains(t, r.err, address, command)
		require.Contains(t, r.err, "is the launcher running there?", command)
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	}
}

func TestSomethingElseAtTheAddressIsTakenForNoLauncher(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("SSH-2.0-x\r\n"))
			_ = conn.Close()
		}
	}()
	r := call(t, "ps", "--server", l.Addr().String())
	require.NoError(t, l.Close())
	<-over
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "is the launcher running there?")
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("sesame\n"), 0o600))
	d := startDaemon(t, "--token-file", file)

	t.Run("without one, the launcher's refusal is exit code 1", func(t *testing.T) {
		r := d.call("ps")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "token")
	})
	t.Run("of a file named by the flag", func(t *testing.T) { d.do("ps", "--token-file", file) })
	t.Run("of a file named in the environment", func(t *testing.T) {
		t.Setenv(envTokenFile, file)
		d.do("ps")
	})
	t.Run("in the environment", func(t *testing.T) {
		t.Setenv(envToken, "sesame")
		d.do("ps")
	})
	t.Run("named by the flag count more than that in the environment", func(t *testing.T) {
		t.Setenv(envToken, "wrong")
		d.do("ps", "--token-file", file)
		require.Equal(t, exitFailed, d.call("ps").code)
	})
}

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, other := mtlstest.New(t, "ca"), mtlstest.New(t, "other")
	cert, key := mtlstest.Write(t, dir, ca.Server(t, "launcher.example"))
	cas, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	mtlstest.WriteCAs(t, cas, ca)
	require.NoError(t, os.WriteFile(token, []byte("sesame\n"), 0o600))
	certificate := func(by *mtlstest.CA) []string {
		cert, key := mtlstest.Write(t, t.TempDir(), by.Client(t, time.Hour))
		return []string{"ps", "--server-ca", cas, "--client-cert", cert, "--client-key", key}
	}
	served := func(more ...string) *daemonProcess {
		d := startDaemon(t, append([]string{"--tls-cert", cert, "--tls-key", key, "--client-ca", cas}, more...)...)
		d.address = "https://" + d.address
		return d
	}
	refused := func(d *daemonProcess, says string, args ...string) {
		t.Helper()
		r := d.call(args...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, says)
	}
	d := served()
	d.do(certificate(ca)...)
	refused(d, "a client certificate is required", certificate(other)...) // it is not even shown: the launcher has not named its authority
	refused(d, "a client certificate is required", "ps", "--server-ca", cas)
	refused(d, "a client certificate is required", "ps", "--server-ca", cas, "--token-file", token)
	refused(d, "certificate signed by unknown authority", "ps")
	t.Run("named in the environment", func(t *testing.T) {
		named := certificate(ca)
		t.Setenv(envServerCA, named[2])
		t.Setenv(envClientCert, named[4])
		t.Setenv(envClientKey, named[6])
		d.do("ps")
	})
	t.Run("beside a token either counts", func(t *testing.T) {
		d := served("--token-file", token)
		d.do(certificate(ca)...)
		d.do("ps", "--server-ca", cas, "--token-file", token)
		refused(d, "token", "ps", "--server-ca", cas)
	})
}

func TestCompletion(t *testing.T) {
	t.Run("offers the ids that the launcher has", func(t *testing.T) {
		d := startDaemon(t)
		d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
		d.do("run", "--gpu", "1", "--id", "b", "--wait", "n")
		for _, command := range []string{"swap", "sleep", "wake", "stop", "logs", "get", "wait", "chat"} {
			require.Equal(t, "a\tawake m\nb\tawake n\n:4\n", d.do("__complete", command, "").out, command)
		}
		require.Equal(t, "b\tawake n\n:4\n", d.do("__complete", "stop", "a", "").out, "not what is named already")
		require.Equal(t, ":4\n", d.do("__complete", "swap", "a", "").out, "one is enough")
	})
	t.Run("keeps silent without a launcher", func(t *testing.T) {
		r := call(t, "__complete", "swap", "--server", "127.0.0.1:1", "")
		require.Equal(t, ":4\n", r.out)
	})
	t.Run("does not wait for a launcher that hangs", func(t *testing.T) {
		release := make(chan struct{})
		hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		defer hanging.Close()
		defer close(release)
		require.Equal(t, ":4\n", call(t, "__complete", "swap", "--server", hanging.URL, "").out)
	})
	t.Run("offers the values of flags", func(t *testing.T) {
		require.Equal(t, "sleep\nstop\n:4\n", call(t, "__complete", "swap", "--out", "").out)
		require.Equal(t, "table\nwide\njson\n:4\n", call(t, "__complete", "ps", "-o", "").out)
	})
}

func TestAnErrorIsShownWithAllThatTheLauncherToldAboutIt(t *testing.T) {
	problems := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", launcherapi.ProblemContentType)
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"status":409,"code":"does_not_fit","detail":"no room:\n70 GiB wanted, 5 GiB free","last_log_lines":["one","\u001b]0;title\u0007two"],"exit_code":-9,"cause":"killed"}`)
	}))
	defer problems.Close()
	r := call(t, "swap", "a", "--server", problems.URL)
	require.Equal(t, exitFailed, r.code)
	golden(t, "problem", r.err)
}
