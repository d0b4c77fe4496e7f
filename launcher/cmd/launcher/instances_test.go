package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMissingInstanceIsToldWithThoseThereAre(t *testing.T) {
	many := make([]launcherapi.Instance, 12)
	for n := range many {
		many[n] = launcherapi.Instance{InstanceID: fmt.Sprintf("instance-%d", n)}
	}
	for want, e := range map[string]*noInstanceError{
		`no instance "a"; there are none: launcher run starts one`:       {"a", nil},
		`no instance "qwne"; there are: qwen, llama; did you mean qwen?`: {"qwne", []launcherapi.Instance{{InstanceID: "qwen"}, {InstanceID: "llama"}}},
		`no instance "mistral"; there are: qwen`:                         {"mistral", []launcherapi.Instance{{InstanceID: "qwen"}}},
		`no instance "Qwen/Qwen3-8B"; there are: a, b; did you mean b?`:  {"Qwen/Qwen3-8B", []launcherapi.Instance{{InstanceID: "a"}, {InstanceID: "b", Model: "Qwen/Qwen3-8B"}}},
		`no instance "chat"; there are: instance-0, instance-1, instance-2, instance-3, instance-4, instance-5, instance-6, instance-7, instance-8, instance-9 and 2 more (launcher ps lists them)`: {"chat", many},
	} {
		require.EqualError(t, e, want)
	}
}

func TestRunWithTakenIDSaysWhatHelps(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "none", "--id", "a", "m")
	r := d.call("run", "--gpu", "none", "--id", "a", "m")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "launcher swap a wakes it, and launcher stop a ends it")
}

func TestStopOfAllSaysAtOnceWhichInstanceIsGone(t *testing.T) {
	d := startDaemon(t, "--stop-grace", "1h")
	d.do("run", "--gpu", "none", "--id", "quick", "--wait", "m")
	d.do("run", "--gpu", "none", "--id", "stubborn", "--wait", "m", "--sim-ignore-term")
	stopping := spawnClient(t, d, "stop", "--all")
	stopping.log.awaitText(t, "quick is stopped, and gone")
	pid := d.get("stubborn").PID
	require.NotZero(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Equal(t, exitOK, stopping.await())
	require.Contains(t, stopping.log.text(), "stubborn is stopped, and gone")
}
