package swap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/feed"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/launcher/internal/turns"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// patience bounds every wait for something that has to happen.
const patience = 30 * time.Second

// life is one life of a launcher without instances, with a journal.
func life(t *testing.T, journal *paper) *Coordinator {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	queue := &turns.Queue{}
	sup := supervisor.New(supervisor.Options{Journal: journal, Feed: feed.New(1, 0), Turns: queue, Logger: log})
	c := New(Options{
		Supervisor: sup, Turns: queue, Logger: log, Finished: func(string, launcherapi.SwapResult) {},
		Limits: supervisor.Limits{Start: time.Minute, Sleep: time.Minute, Wake: time.Minute, Memory: time.Second},
	})
	t.Cleanup(func() {
		c.Close(t.Context())
		assert.NoError(t, sup.Close(t.Context(), false))
	})
	return c
}

// remembered is what a journal says.
func (p *paper) remembered(t *testing.T) supervisor.Memory {
	t.Helper()
	var lines []json.RawMessage
	for _, r := range p.written() {
		line, err := json.Marshal(r)
		require.NoError(t, err)
		lines = append(lines, line)
	}
	m, err := supervisor.Replay(lines)
	require.NoError(t, err)
	return m
}

func saved(id string, gpus ...string) supervisor.SavedSwap {
	return supervisor.SavedSwap{ID: id, GPUs: gpus, In: "new-" + id, New: true, Out: []string{"old-" + id}, Level: 1, Phase: "start"}
}

func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "it does not come to an end: "+what)
	}
}

func TestUnfinishedSwapsThatOverlapDoNotKeepTheLauncherFromServing(t *testing.T) {
	journal := &paper{}
	c := life(t, journal)
	within(t, "recovery", func() {
		c.Recover(nil, []supervisor.SavedSwap{saved("s1", "g0"), saved("s2", "g0", "g1"), saved("s3", "g2")})
	})
	within(t, "the swaps that were taken up", c.tasks.Wait)
	m := journal.remembered(t)
	assert.Empty(t, m.Swaps, "each is over, and that is written down")
	var undone []string
	for _, r := range journal.written() {
		if r.Swap != nil && r.Swap.Failure != nil {
			undone = append(undone, r.Swap.ID)
		}
	}
	assert.NotContains(t, undone, "s1", "another swap had its turn there after it: it was over before")
	assert.Contains(t, undone, "s2")
	assert.Contains(t, undone, "s3")
}

func TestARetryJoinsTheSwapThatIsTakenUpAndIsToldItsPhase(t *testing.T) {
	journal := &paper{}
	c := life(t, journal)
	request := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}}
	s := saved("s1", "g0")
	s.Key = keyOf(t, "k", request)
	c.Recover(nil, []supervisor.SavedSwap{s})
	for range 2 { // while it runs, perhaps, and when it is over
		r, err := c.Begin(request, "k")
		require.NoError(t, err)
		result, err := r.Wait(t.Context())
		failed := asFailed(err)
		require.NotNil(t, failed, "%v", err)
		assert.Equal(t, "s1", result.SwapID)
		assert.Equal(t, launcherapi.OutcomeUndoFailed, result.Outcome, "who was awake is gone")
		assert.Equal(t, launcherapi.PhaseStart, failed.Phase)
		assert.ErrorContains(t, err, "old-s1 is gone")
		c.tasks.Wait()
	}
}

func keyOf(t *testing.T, key string, request launcherapi.SwapRequest) *supervisor.SavedKey {
	t.Helper()
	digest, err := digestOf(request)
	require.NoError(t, err)
	return newKey(key, digest)
}

func TestAKeyIsRememberedByTheNextLifeAndByTheOneAfterACompaction(t *testing.T) {
	journal := &paper{}
	c := life(t, journal)
	secret := "hf_verysecretword"
	request := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{
		InstanceID: "b", EnvVars: map[string]launcherapi.EnvValue{"HF_TOKEN": {Value: secret}},
	}}
	s := saved("s1", "g0")
	s.Done, s.Key = true, keyOf(t, "k", request)
	s.Result = &launcherapi.SwapResult{SwapID: "s1", Outcome: launcherapi.OutcomeDone, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{}}
	c.Recover([]supervisor.SavedSwap{s}, nil)
	for range 2 {
		snapshot := &paper{}
		for _, r := range c.opts.Supervisor.Snapshot(c.Saved()) {
			require.NoError(t, snapshot.Append(r))
		}
		m := snapshot.remembered(t)
		require.Len(t, m.Ended, 1)
		text, err := json.Marshal(m)
		require.NoError(t, err)
		assert.NotContains(t, string(text), secret)
		c = life(t, snapshot)
		c.Recover(m.Ended, m.Swaps)
		r, err := c.Begin(request, "k")
		require.NoError(t, err)
		result, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, *s.Result, result)
		var steps []launcherapi.SwapProgress
		require.NoError(t, r.Follow(t.Context(), func(p launcherapi.SwapProgress) error { steps = append(steps, p); return nil }))
		require.Len(t, steps, 1)
		assert.Equal(t, launcherapi.ProgressResult, steps[0].Type)
	}
	request.In.EnvVars["HF_TOKEN"] = launcherapi.EnvValue{Value: "another"}
	_, err := c.Begin(request, "k")
	assert.Equal(t, launcherapi.CodeKeyReused, launcher.CodeOf(err))
}

func TestWhatIsRememberedOfKeysIsBounded(t *testing.T) {
	c := life(t, &paper{})
	long := strings.Repeat("x", 2*keptBytes)
	for n := range keptKeys + 10 {
		s := saved(fmt.Sprint(n))
		s.Done, s.Key = true, newKey(fmt.Sprint("key-", n), [32]byte{})
		s.Result = &launcherapi.SwapResult{
			SwapID: s.ID, In: &launcherapi.Instance{InstanceID: "b", Options: &long}, Out: []launcherapi.Instance{{InstanceID: "a", Args: []string{long}}},
		}
		s.Failure = &supervisor.SavedFailure{Detail: "why", LastLogLines: []string{long}}
		bound(&s)
		assert.LessOrEqual(t, size(&s), keptBytes)
		c.Recover([]supervisor.SavedSwap{s}, nil)
	}
	all := c.Saved()
	require.Len(t, all, keptKeys)
	assert.Equal(t, "10", all[0].ID, "the oldest are forgotten")
	assert.Equal(t, "b", all[0].Result.In.InstanceID)
	assert.Equal(t, "a", all[0].Result.Out[0].InstanceID)
}

func TestTheEndOfTheLauncherLeavesASwapInTheQueueRefusedAndForgetsItsKey(t *testing.T) {
	journal := &paper{}
	c := life(t, journal)
	r := c.newRun("s")
	r.saved.Key = newKey("k", [32]byte{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Close(ctx)
	r.conclude(launcherapi.OutcomeRefused, &FailedError{Phase: launcherapi.PhaseAdmit, Err: context.Canceled})
	r.finish()
	result, err := r.Wait(t.Context())
	assert.Equal(t, launcherapi.OutcomeRefused, result.Outcome)
	assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
	assert.Empty(t, journal.remembered(t).Ended, "a retry after the restart is a new swap: nothing was touched")
}
