package logrelay

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestTheLogOfAnInstanceThatStartsIsFollowed(t *testing.T) {
	e, p := newEngine(""), newProgram(t)
	r := newRig(t, e)
	r.Saw(r.seen(p, launcher.Starting, 0))
	e.says("one\n")
	r.printed(p, "one\n")
	e.says("two\n")
	r.printed(p, "one\ntwo\n")
	assert.Equal(t, 1, r.Followers())
	r.Saw(r.seen(p, launcher.Awake, 0))
	require.Eventually(t, func() bool { return r.Followers() == 0 }, patience.Wait(), time.Millisecond)
	e.says("three\n")
	r.Saw(r.seen(p, launcher.Awake, 0))
	r.Saw(r.seen(p, launcher.FallingAsleep, 0))
	r.printed(p, "one\ntwo\nthree\n")
}

func TestARelayThatIsStartedAgainPrintsNothingTwiceAndLosesNothing(t *testing.T) {
	e, p := newEngine("one\n"), newProgram(t)
	first := newRig(t, e)
	first.Saw(first.seen(p, launcher.Starting, 0))
	first.printed(p, "one\n")
	first.kill()
	e.says("two\n")
	second := newRig(t, e)
	second.Saw(second.seen(p, launcher.Starting, 0))
	second.printed(p, "one\ntwo\n")
	e.says("three\n")
	second.printed(p, "one\ntwo\nthree\n")
}

func TestWhatAnInstanceSaidBeforeIsAnothersBusiness(t *testing.T) {
	for name, from := range map[string]int64{"since it fell asleep": int64(len("before\n")), "since it is bound": -1} {
		t.Run(name, func(t *testing.T) {
			e, p := newEngine("before\n"), newProgram(t)
			r := newRig(t, e)
			require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Awake, from).Observation))
			e.says("after\n")
			require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Failed, from).Observation))
			assert.Equal(t, "after\n", p.printed())
		})
	}
}

func TestTheEndOfALogIsThereOnceItIsFlushed(t *testing.T) {
	e, p := newEngine("start\n"), newProgram(t)
	r := newRig(t, e)
	r.Saw(r.seen(p, launcher.Starting, 0))
	r.printed(p, "start\n")
	long := strings.Repeat("a line of the end\n", 2*requesterapi.MaxLogChunk/18)
	e.says(long)
	e.ends()
	require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Failed, 0).Observation))
	assert.True(t, p.printed() == "start\n"+long, "%d bytes", len(p.printed()))
}

func TestTheLogReachesAProgramThatIsBoundByAnEarlierAttempt(t *testing.T) {
	e, p := newEngine("start\n"), newProgram(t)
	r := newRig(t, e)
	o := r.seen(p, launcher.Awake, 0).Observation
	engine, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	port := func(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) } //nolint:gosec // a port
	config := requesterapi.ProxyConfig{Binding: o.Record.SwapKey(), ServingPort: port(free), Address: "127.0.0.1", Port: port(engine)}
	_, err = r.spi.Bind(t.Context(), o.Requester.AdminAddress, config)
	require.NoError(t, err)
	o = r.seen(p, launcher.Awake, 0).Observation
	o.Record.Attempt = 2
	require.NoError(t, r.Flush(t.Context(), o))
	assert.Equal(t, "start\n", p.printed())
}

func TestAFlushIsNotWaitedForLongerThanItsTime(t *testing.T) {
	e, p := newEngine("start\n"), newProgram(t)
	r := newRig(t, e)
	r.Saw(r.seen(p, launcher.Starting, 0))
	r.printed(p, "start\n") // and is followed on
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	require.ErrorIs(t, r.Flush(ctx, r.seen(p, launcher.Starting, 0).Observation), context.DeadlineExceeded)
}

func TestNoMoreLogsAreFollowedThanMayBe(t *testing.T) {
	e := newEngine("")
	r := newRig(t, e, func(o *Options) { o.Workers, o.Followers = 3, 2 })
	var programs []*program
	for range 5 {
		p := newProgram(t)
		programs = append(programs, p)
		r.Saw(r.seen(p, launcher.Starting, 0))
	}
	require.Eventually(t, func() bool { return r.Followers() == 2 }, patience.Wait(), time.Millisecond)
	e.says("started\n")
	for _, p := range programs {
		r.Saw(r.seen(p, launcher.Awake, 0))
	}
	for _, p := range programs {
		r.printed(p, "started\n")
	}
	require.Eventually(t, func() bool { return r.Followers() == 0 }, patience.Wait(), time.Millisecond)
}

// failing is a launcher whose swaps fail.
type failing struct{ provider.Provider }

func (failing) SwapOnce(context.Context, string, launcherapi.SwapRequest, func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	return launcherapi.SwapResult{}, &launcher.Error{Code: launcherapi.CodeEngineFailed, Detail: "it ended", LastLogLines: []string{"no weights", "bye"}}
}

func TestTheLastWordsOfAnEngineThatCouldNotBeFollowedAreToldOnce(t *testing.T) {
	e, p := newEngine(""), newProgram(t)
	r := newRig(t, e)
	early := r.seen(p, launcher.Starting, 0)
	early.Observation.Instance = nil
	r.Saw(early) // the instance came and went unseen
	_, err := r.Watched(failing{}).SwapOnce(dualpods.ForRequester(t.Context(), early.Observation.Requester.UID), "key", launcherapi.SwapRequest{}, nil)
	require.Error(t, err)
	r.printed(p, "no weights\nbye\n")

	// The next one is followed to its end: its last words are in its log.
	r.Saw(r.seen(p, launcher.Starting, 0))
	e.says("again\nno weights\nbye\n")
	e.ends()
	r.printed(p, "no weights\nbye\nagain\nno weights\nbye\n")
	_, err = r.Watched(failing{}).SwapOnce(dualpods.ForRequester(t.Context(), early.Observation.Requester.UID), "key", launcherapi.SwapRequest{}, nil)
	require.Error(t, err)
	r.idle()
	assert.Equal(t, "no weights\nbye\nagain\nno weights\nbye\n", p.printed())
}

// idle waits until nothing is left to do.
func (r *rig) idle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.workers == 0
	}, patience.Wait(), time.Millisecond)
}

func TestARequesterThatLeavesIsForgotten(t *testing.T) {
	e, p := newEngine("one\n"), newProgram(t)
	r := newRig(t, e)
	r.Saw(r.seen(p, launcher.Starting, 0))
	r.printed(p, "one\n")
	gone := r.seen(p, launcher.Starting, 0)
	gone.Leaving, gone.Serving = true, true
	e.says("two\n")
	r.Saw(gone)
	r.printed(p, "one\ntwo\n")
	gone.Serving = false
	r.Saw(gone)
	r.idle()
	assert.Empty(t, r.jobs)
	e.says("three\n")
	r.Saw(gone)
	r.idle()
	assert.Equal(t, "one\ntwo\n", p.printed())
}

func TestALogThatCouldNotBeReadIsReadWithTheNextSight(t *testing.T) {
	e, p := newEngine("one\n"), newProgram(t)
	e.gone = true
	r := newRig(t, e)
	r.Saw(r.seen(p, launcher.Awake, 0))
	r.idle()
	assert.Empty(t, p.printed())
	e.change(func() { e.gone = false })
	r.Saw(r.seen(p, launcher.Awake, 0))
	r.printed(p, "one\n")
	assert.False(t, errors.Is(r.Flush(t.Context(), r.seen(p, launcher.Awake, 0).Observation), context.Canceled))
}

func TestDroppedBytesOfALogAreSaidAndNothingIsPrintedTwice(t *testing.T) {
	e, p := newEngine("one\n"), newProgram(t)
	r := newRig(t, e)
	flush := func(r *rig) {
		t.Helper()
		require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Awake, 0).Observation))
	}
	flush(r)
	e.says("two\nthree\n")
	e.change(func() { e.begin = int64(len("one\ntwo\n")) })
	flush(r)
	want := "one\n" + client.DroppedText(4, 8) + "three\n"
	assert.Equal(t, want, p.printed())

	e.says("four\n")
	flush(newRig(t, e)) // another controller
	flush(r)
	assert.Equal(t, want+"four\n", p.printed())

	e.says("five\nsix\n")
	e.change(func() { e.begin = int64(len("one\ntwo\nthree\nfour\nfive\n")) })
	flush(r)
	assert.Equal(t, want+"four\n"+client.DroppedText(19, 24)+"six\n", p.printed())
}

func TestARequesterThatIsBoundLateHasNothingOfALogWhoseBeginningIsGone(t *testing.T) {
	e, p := newEngine("one\ntwo\n"), newProgram(t)
	e.begin = int64(len("one\n"))
	r := newRig(t, e)
	require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Awake, -1).Observation))
	e.says("three\n")
	require.NoError(t, r.Flush(t.Context(), r.seen(p, launcher.Awake, -1).Observation))
	assert.Equal(t, "three\n", p.printed())
}
