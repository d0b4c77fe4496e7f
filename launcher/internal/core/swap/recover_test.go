package swap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// life is one run of a launcher without instances.
func life(t *testing.T, written *paper) *Coordinator {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	queue := &gpuqueue.Queue{}
	sup := supervisor.New(supervisor.Options{Records: newPaper(t), Feed: eventlog.New(1, 0), Turns: queue, Logger: log})
	c := New(Options{
		Supervisor: sup, Turns: queue, Records: written, Logger: log, Finished: func(string, launcherapi.SwapResult) {},
		Limits: supervisor.Limits{Start: time.Minute, Sleep: time.Minute, Wake: time.Minute, Memory: time.Second},
	})
	t.Cleanup(func() {
		c.Close(t.Context())
		assert.NoError(t, sup.Close(t.Context(), false))
	})
	return c
}

func saved(id string, gpus ...string) Saved {
	plan := planToCreate(id, "new-"+id, "old-"+id)
	plan.GPUs = gpus
	return Saved{Plan: plan, Phase: "start"}
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
	case <-time.After(patience.Wait()):
		require.FailNow(t, "it does not come to an end: "+what)
	}
}

func TestOverlappingUnfinishedSwapsDoNotBlockTheLauncher(t *testing.T) {
	written := newPaper(t)
	c := life(t, written)
	within(t, "recovery", func() {
		c.Recover([]Saved{saved("s1", "g0"), saved("s2", "g0", "g1"), saved("s3", "g2")})
	})
	within(t, "the swaps that were taken up", c.tasks.Wait)
	assert.Empty(t, written.all(), "each is over, and that is written down")
	undone := map[string]bool{}
	for _, s := range written.ever() {
		undone[s.Plan.SwapID] = undone[s.Plan.SwapID] || s.Failure != nil
	}
	assert.Equal(t, map[string]bool{"s1": true, "s2": true, "s3": true}, undone)
}

func TestRetryJoinsTheRecoveredSwap(t *testing.T) {
	written := newPaper(t)
	c := life(t, written)
	request := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}}
	s := saved("s1", "g0")
	s.Key = keyOf(t, "k", request)
	c.Recover([]Saved{s})
	for range 2 { // perhaps while it runs, and when it is over
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

func TestRecoveredSwapThatWaitsIsInterruptedWhenTheLauncherCloses(t *testing.T) {
	c := life(t, newPaper(t))
	turn, err := c.opts.Turns.Take(t.Context(), "other", []string{"g0"})
	require.NoError(t, err)
	defer turn.Release()
	c.Recover([]Saved{saved("s1", "g0")})
	r, err := c.Get("s1")
	require.NoError(t, err)
	c.Close(expired(t))
	within(t, "the swap", func() {
		result, err := r.Wait(t.Context())
		assert.Equal(t, launcherapi.OutcomeInterrupted, result.Outcome)
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
	})
}

func keyOf(t *testing.T, key string, request launcherapi.SwapRequest) *SavedKey {
	t.Helper()
	digest, err := digestOf(request)
	require.NoError(t, err)
	return newKey(key, digest)
}

func TestKeySurvivesTwoRestarts(t *testing.T) {
	written := newPaper(t)
	c := life(t, written)
	secret := "hf_verysecretword"
	request := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{
		InstanceID: "b", EnvVars: map[string]launcherapi.EnvValue{"HF_TOKEN": {Value: secret}},
	}}
	first := c.newRun("s1")
	first.saved.Key = keyOf(t, "k", request)
	first.conclude(launcherapi.OutcomeDone, nil)
	for range 2 {
		all := written.all()
		require.Len(t, all, 1)
		text, err := json.Marshal(all)
		require.NoError(t, err)
		assert.NotContains(t, string(text), secret)
		c = life(t, written)
		c.Recover(all)
		r, err := c.Begin(request, "k")
		require.NoError(t, err)
		result, err := r.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "s1", result.SwapID)
		assert.Equal(t, launcherapi.OutcomeDone, result.Outcome)
		var steps []launcherapi.SwapProgress
		require.NoError(t, r.Follow(t.Context(), func(p launcherapi.SwapProgress) error { steps = append(steps, p); return nil }))
		require.Len(t, steps, 1)
		assert.Equal(t, launcherapi.ProgressResult, steps[0].Type)
	}
	request.In.EnvVars["HF_TOKEN"] = launcherapi.EnvValue{Value: "another"}
	_, err := c.Begin(request, "k")
	assert.Equal(t, launcherapi.CodeKeyReused, launcher.CodeOf(err))
}

func TestRememberedKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that a disk that stalls does not use up statedir.Patience
		written := newPaper(t)
		c := life(t, written)
		long := strings.Repeat("x", 2*maxResultBytes)
		for n := range maxKeys + 10 {
			r := c.newRun(fmt.Sprintf("s-%04d", n))
			r.saved.Key = newKey(fmt.Sprint("key-", n), [32]byte{})
			r.resultFinal = true
			r.result = launcherapi.SwapResult{
				SwapID: r.ID(), In: &launcherapi.Instance{InstanceID: "b", Options: &long}, Out: []launcherapi.Instance{{InstanceID: "a", Args: []string{long}}},
			}
			r.err = &launcher.SwapError{Err: &launcher.Error{Detail: "why", LastLogLines: []string{long}}}
			r.saveEnd()
		}
		all := written.all()
		require.Len(t, all, maxKeys)
		assert.Equal(t, "s-0010", all[0].Plan.SwapID, "the oldest are forgotten")
		assert.Equal(t, "b", all[0].Result.In.InstanceID)
		assert.Equal(t, "a", all[0].Result.Out[0].InstanceID)
		for _, s := range all {
			assert.LessOrEqual(t, resultSize(&s), maxResultBytes)
		}
		c = life(t, written)
		c.Recover(append(all, Saved{Plan: launcher.Plan{SwapID: "later"}, Done: true, Key: newKey("later", [32]byte{}), Result: all[0].Result}))
		assert.Len(t, written.all(), maxKeys-1, "the oldest makes room")
	})
}

func TestClosingRefusesQueuedSwapAndForgetsItsKey(t *testing.T) {
	written := newPaper(t)
	c := life(t, written)
	r := c.newRun("s")
	r.saved.Key = newKey("k", [32]byte{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Close(ctx)
	r.conclude(launcherapi.OutcomeRefused, &launcher.SwapError{Phase: launcherapi.PhaseAdmit, Err: context.Canceled})
	r.finish()
	result, err := r.Wait(t.Context())
	assert.Equal(t, launcherapi.OutcomeRefused, result.Outcome)
	assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
	assert.Empty(t, written.all(), "a retry after the restart is a new swap: nothing was touched")
}
