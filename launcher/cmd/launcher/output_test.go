package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

var exampleGPUs = []launcherapi.GPU{
	{
		UUID: "GPU-a", Index: 0, Product: "NVIDIA H100 80GB HBM3", Healthy: true,
		MemoryTotalBytes: 80 << 30, MemoryUsedBytes: 75 << 30, MemoryFreeBytes: 5 << 30,
		Awake:    []launcherapi.GPUHolder{{InstanceID: "chat", State: "awake", Bytes: 70 << 30, Measured: true}},
		Sleepers: []launcherapi.GPUHolder{{InstanceID: "code", Bytes: 3 << 29, Measured: true}, {InstanceID: "mail", Bytes: 1 << 30}},
	},
	{UUID: "GPU-b", Index: 1, Product: "NVIDIA H100 80GB HBM3", MemoryTotalBytes: 80 << 30, ForeignBytes: 2 << 30, HealthReason: "fallen off\nthe bus"},
	{UUID: "MIG-c", Index: 1, Product: "NVIDIA H100 MIG 1g.10gb", MIG: true, Healthy: true, MemoryTotalBytes: 10 << 30, MemoryFreeBytes: 10 << 30},
}

func TestTables(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, table := range map[string]*table{
		"ps": instanceTable([]launcherapi.Instance{
			{InstanceID: "chat", Model: "Qwen/Qwen3-8B", State: "awake", GPUUUIDs: []string{"GPU-a", "GPU-b"}, Port: 9000, PID: 4711, InFlight: 3, CreatedAt: now.Add(-90 * time.Minute)},
			{InstanceID: "code", Model: "Qwen/Qwen3-Coder-30B", State: "sleeping", GPUUUIDs: []string{"MIG-c"}, Port: 9001, PID: 4712, CreatedAt: now.Add(-50 * time.Hour)},
			{InstanceID: "mail", Model: "tiny", State: "failed", GPUUUIDs: []string{"GPU-gone"}, Port: 9002, CreatedAt: now.Add(-5 * time.Second), Reason: "it ran out\nof memory " + strings.Repeat("x", 200)},
			{InstanceID: "none", Model: "tiny", State: "starting", Reason: "not told while it starts", Port: 9003, PID: 4713, CreatedAt: now},
		}, exampleGPUs, now, failure),
		"ps-well":  instanceTable([]launcherapi.Instance{{InstanceID: "chat", Model: "Qwen/Qwen3-8B", State: "awake", Port: 9000, PID: 4711, CreatedAt: now}}, nil, now, failure),
		"ps-empty": instanceTable(nil, nil, now, failure),
		"gpus":     gpuTable(launcherapi.GPUList{GPUs: exampleGPUs}),
	} {
		t.Run("are as the file says: "+name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, table.write(&out))
			golden(t, "table/"+name, out.String())
		})
	}
}

func TestAnAgeIsWrittenInItsTwoLargestUnits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "59s": 59 * time.Second, "1m0s": time.Minute, "59m59s": time.Hour - 1,
		"23h59m": 24*time.Hour - 1, "1d0h": 24 * time.Hour, "11d3h": 267 * time.Hour,
	} {
		require.Equal(t, want, age(d))
	}
}

func TestASwapIsDescribedInOneLine(t *testing.T) {
	a, b := launcherapi.Instance{InstanceID: "a", State: "sleeping"}, launcherapi.Instance{InstanceID: "b", State: "awake"}
	for want, r := range map[string]launcherapi.SwapResult{
		"b is awake; a is sleeping (12.3 ms)\n": {Outcome: "done", In: &b, Out: []launcherapi.Instance{a}, TotalMS: 12.34},
		"b is awake (1.50 s)\n":                 {Outcome: "done", In: &b, TotalMS: 1500},
		"b is awake; a is sleeping, c was evicted, 2 answers in flight were cut (1.0 ms)\n": {Outcome: "done", In: &b, Out: []launcherapi.Instance{a}, Evicted: []string{"c"}, Cut: 2, TotalMS: 1},
		"no instance is awake; a is sleeping (1.0 ms)\n":                                    {Outcome: "done", Out: []launcherapi.Instance{a}, TotalMS: 1},
		"nothing to do: b is awake already\n":                                               {Outcome: "noop", In: &b},
		"it fits: b would be awake, and not a\n":                                            {Outcome: "dry_run", In: &b, Out: []launcherapi.Instance{a}},
	} {
		var out bytes.Buffer
		require.NoError(t, describeSwap(&out, r))
		require.Equal(t, want, out.String())
	}
}

func TestAGPUIsPickedByUUIDOrIndex(t *testing.T) {
	pick := func(name string) string {
		uuid, err := pickGPU(exampleGPUs, name)
		if err != nil {
			return "error: " + err.Error()
		}
		return uuid
	}
	require.Equal(t, "GPU-a", pick("0"))
	require.Equal(t, "GPU-b", pick("GPU-b"))
	require.Equal(t, "MIG-c", pick("MIG-c"))
	require.Contains(t, pick("1"), "name one by its UUID: GPU-b, MIG-c", "two devices share the index")
	require.Contains(t, pick("7"), "there are: 0 (GPU-a), 1 (GPU-b), 1 (MIG-c)")
}

func TestTheEnvironmentOfAnEngine(t *testing.T) {
	t.Setenv("FROM_HERE", "here=1")
	env, err := environment([]string{"A=b=c", "EMPTY=", "FROM_HERE"})
	require.NoError(t, err)
	require.Equal(t, map[string]launcherapi.EnvValue{"A": {Value: "b=c"}, "EMPTY": {}, "FROM_HERE": {Value: "here=1"}}, env)
	env, err = environment(nil)
	require.NoError(t, err)
	require.Nil(t, env)
}

func TestProgress(t *testing.T) {
	t.Run("tells each state once", func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out)
		for _, state := range []string{"starting", "starting", "awake"} {
			p.state(launcherapi.Instance{InstanceID: "a", State: state})
		}
		require.Regexp(t, `^ +\d+\.\d{3}s  a is starting\n +\d+\.\d{3}s  a is awake\n$`, out.String())
	})
	t.Run("tells each phase of a swap when it is over", func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out)
		p.swap(launcherapi.SwapProgress{Type: "phase_started", Phase: "wake", InstanceID: "a"})
		p.swap(launcherapi.SwapProgress{Type: "phase_done", Phase: "wake", InstanceID: "a", DurationMS: 1234})
		p.swap(launcherapi.SwapProgress{Type: "result"})
		require.Regexp(t, `^ +\d+\.\d{3}s  wake a: 1.23 s\n$`, out.String())
		p.close()
	})
	t.Run("tells of a phase while it lasts, and of nothing after the end", func(t *testing.T) {
		read, write := io.Pipe()
		p := newProgress(write)
		p.swap(launcherapi.SwapProgress{Type: "phase_started", Phase: "healthy", InstanceID: "a"})
		line := make([]byte, 100)
		n, err := read.Read(line)
		require.NoError(t, err)
		require.Regexp(t, `s  healthy a …\n$`, string(line[:n]))
		p.close()
		p.state(launcherapi.Instance{InstanceID: "a", State: "awake"}) // would block
	})
}

func TestATableShowsWhatATerminalWouldObey(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wide := func(i launcherapi.Instance) string { return oneLine(i.Reason) }
	var out bytes.Buffer
	require.NoError(t, instanceTable([]launcherapi.Instance{
		{InstanceID: "a", Model: "größe 模型 \x1b[2J\u202e\x00\u009b", State: "awake", Reason: "started by exec: \x07why\nand how", Port: 9000, CreatedAt: now},
	}, nil, now, wide).write(&out))
	require.Contains(t, out.String(), `größe 模型 \x1b[2J\u202e\x00\u009b`)
	require.Contains(t, out.String(), `started by exec: \awhy and how`)
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
}

func TestATerminalIsShownWhatItWouldObey(t *testing.T) {
	const said = "a\tb\r\n\x1b]0;owned\x07\x1b[2J \u009b é 👩\u200d🚀\xff\n"
	for size := 1; size < 5; size++ {
		var out bytes.Buffer
		w := &shown{to: &out}
		for left := []byte(said); len(left) > 0; left = left[min(size, len(left)):] {
			part := left[:min(size, len(left))]
			n, err := w.Write(part)
			require.NoError(t, err)
			require.Equal(t, len(part), n)
		}
		require.Equal(t, "a\tb\r\n\\x1b]0;owned\\a\\x1b[2J \\u009b é 👩\u200d🚀\\xff\n", out.String(), size)
	}
	var pipe bytes.Buffer
	require.Same(t, &pipe, forPerson(&pipe), "a program gets the text as it is")
}

func TestChatAndLogsShowATerminalWhatItWouldObey(t *testing.T) {
	server, _ := fakeChat(t, answers("\\u001b[2Jyes"))
	d := startDaemon(t)
	d.do("run", "--id", "a", "--gpu", "0", "--wait", "m")
	log, err := os.OpenFile(filepath.Join(d.stateDir, "logs", "a.1.log"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = log.WriteString("\x1b[2Jlogged\n")
	require.NoError(t, err)
	require.NoError(t, log.Close())
	for text, args := range map[string][]string{
		`\x1b[2Jyes`:    {"chat", "a", "--server", server, "--", "x"},
		`\x1b[2Jlogged`: {"logs", "a", "--tail", "1", "--server", d.address},
	} {
		person, terminal := openTerminal(t)
		var errs bytes.Buffer
		require.Equal(t, exitOK, (&cli{out: terminal, err: &errs}).run(t.Context(), args), errs.String())
		line, err := bufio.NewReader(person).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, text+"\r\n", line)
	}
}
