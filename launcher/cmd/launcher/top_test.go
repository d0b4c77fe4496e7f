package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

var topTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// examplePicture is a launcher with two GPUs in the middle of a swap.
func examplePicture() picture {
	since := func(d time.Duration) time.Time { return topTime.Add(-d) }
	gpus := slices.Clone(exampleGPUs)
	gpus[1].Awake = []launcherapi.GPUHolder{{InstanceID: "big", State: "waking"}}
	return picture{
		server: "http://127.0.0.1:8001",
		gpus:   gpus,
		instances: []launcherapi.Instance{
			{InstanceID: "chat", State: "awake", StateSince: since(90 * time.Minute), GPUUUIDs: []string{"GPU-a"}, InFlight: 3, Held: 1},
			{InstanceID: "code-7f3a", State: "sleeping", StateSince: since(50 * time.Hour), GPUUUIDs: []string{"GPU-a"}},
			{InstanceID: "mail", State: "failed", StateSince: since(5 * time.Second), GPUUUIDs: []string{"MIG-c"}, Reason: "it ran out\nof memory"},
		},
		door: &launcherapi.FrontDoor{Address: "127.0.0.1:8000", Profile: "night", Profiles: []string{"day", "night"}, Models: []launcherapi.FrontDoorModel{
			{Names: []string{"chat", "gpt"}, InstanceID: "chat", State: "awake", InFlight: 2},
			{Names: []string{"Qwen/Qwen3-Coder-480B-A35B-Instruct"}, InstanceID: "code-7f3a", State: "sleeping", Waiting: 4, Why: "chat is busy"},
			{Names: []string{"日本語モデル"}, State: "stopped", Failures: 5, HeldBack: true, RetryAt: topTime.Add(8 * time.Second), Failure: "it does not start"},
		}},
		swaps: []launcherapi.Swap{
			{SwapID: "1", State: "over", InstanceID: "chat", GPUUUIDs: []string{"GPU-a"}, BeganAt: since(9 * time.Second), Result: &launcherapi.SwapResult{Outcome: "done", TotalMS: 1290}},
			{SwapID: "2", State: "over", InstanceID: "mail", GPUUUIDs: []string{"MIG-c"}, BeganAt: since(8 * time.Second), Problem: &launcherapi.Problem{Outcome: "undone", TotalMS: 3000, Detail: "mail is failed:\nout of memory"}},
			{SwapID: "3", State: "running", Phase: "drain", InstanceID: "code-7f3a", GPUUUIDs: []string{"GPU-a"}, BeganAt: since(2 * time.Second)},
			{SwapID: "4", State: "waiting", Phase: "admit", GPUUUIDs: []string{"GPU-a", "GPU-b"}, BeganAt: since(time.Second)},
			{SwapID: "5", State: "waiting", Phase: "go", InstanceID: "chat", GPUUUIDs: []string{"GPU-b"}, BeganAt: since(time.Second)},
		},
		phases: map[string][]launcherapi.PhaseTime{"1": {{Name: "sleep", DurationMS: 700}, {Name: "wake", DurationMS: 590}}, "3": {{Name: "admit", DurationMS: 0.2}}},
	}
}

func TestTopIsDrawnForEachWidth(t *testing.T) {
	lost := examplePicture()
	lost.lost, lost.lostSince = errors.New("cannot reach the launcher: connection refused"), topTime.Add(-12*time.Second)
	bare := picture{server: "http://127.0.0.1:8001", gpus: exampleGPUs[2:]}
	noDoor := examplePicture()
	noDoor.door = nil
	for name, c := range map[string]struct {
		picture picture
		width   int
	}{
		"20": {examplePicture(), 20}, "40": {examplePicture(), 40}, "80": {examplePicture(), 80}, "200": {examplePicture(), 200}, "pipe": {examplePicture(), math.MaxInt},
		"lost-20": {lost, 20}, "lost-80": {lost, 80}, "bare": {bare, 80}, "no-front-door": {noDoor, 120},
	} {
		t.Run(name, func(t *testing.T) { golden(t, "top/"+name, render(c.picture, topTime, c.width)) })
	}
}

func TestNoLineOfTopIsWiderThanTheTerminal(t *testing.T) {
	p := examplePicture()
	p.lost = errors.New("日本語")
	for width := 1; width < 250; width++ {
		for _, line := range strings.Split(render(p, topTime, width), "\n") {
			require.LessOrEqual(t, uniseg.StringWidth(line), width, line)
		}
	}
}

func TestTopShowsControlCharactersInsteadOfSendingThem(t *testing.T) {
	const evil = "\x1b]0;x\a\x1b[2J\u202e\n\t\u009b1m"
	p := examplePicture()
	p.server, p.door.Address, p.door.Profile, p.lost = evil, evil, evil, errors.New(evil)
	for n := range p.instances {
		p.instances[n].InstanceID, p.instances[n].State, p.instances[n].Reason = evil, evil, evil
		p.instances[n].GPUUUIDs = []string{evil}
	}
	p.door.Models[0].Names, p.door.Models[1].Why, p.door.Models[2].State = []string{evil}, evil, evil
	p.gpus = []launcherapi.GPU{{UUID: evil, MIG: true, HealthReason: evil, Awake: []launcherapi.GPUHolder{{InstanceID: evil, State: evil}}, Sleepers: []launcherapi.GPUHolder{{InstanceID: evil}}}}
	p.swaps[0].InstanceID, p.swaps[0].Result.Outcome, p.swaps[1].Problem.Detail, p.swaps[2].Phase = evil, evil, evil, evil
	p.phases["1"][0].Name = evil
	for _, r := range render(p, topTime, math.MaxInt) {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q", r)
	}
}

func TestTopLeavesOutLinesThatHaveNoRoom(t *testing.T) {
	lines := []string{"a", "b", "c", "d"}
	require.Equal(t, lines, crop(lines, 80, 4))
	require.Equal(t, []string{"a", "b", "… 2 more lines"}, crop(lines, 80, 3))
	require.Equal(t, []string{"… 4…"}, crop(lines, 4, 1))
}

func TestTopShowsSwapsThatAreJustOver(t *testing.T) {
	swap := func(id, state string, age time.Duration, ms float64) launcherapi.Swap {
		return launcherapi.Swap{SwapID: id, State: state, BeganAt: topTime.Add(-age), Result: &launcherapi.SwapResult{TotalMS: ms}}
	}
	all := []launcherapi.Swap{
		swap("old", "over", 20*time.Second, 9999), swap("long", "over", 20*time.Second, 10001), swap("waits", "waiting", time.Hour, 0),
	}
	for n := range swapsShown - 1 {
		all = append(all, swap(fmt.Sprint(n), "over", time.Second, 1))
	}
	ids := func(all []launcherapi.Swap) (ids []string) {
		for _, s := range current(all, topTime) {
			ids = append(ids, s.SwapID)
		}
		return ids
	}
	require.Equal(t, []string{"long", "waits", "0", "1", "2", "3"}, ids(all))
	require.Equal(t, []string{"waits", "0", "1", "2", "3", "new"}, ids(append(all, swap("new", "over", 0, 1))))
}
