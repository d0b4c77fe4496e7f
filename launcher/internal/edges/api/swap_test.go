package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

var result = launcherapi.SwapResult{
	SwapID: "swap-1", Outcome: launcherapi.OutcomeDone, Out: []launcherapi.Instance{},
	Phases:  []launcherapi.PhaseTime{{Name: "admit", DurationMS: 0.5}, {Name: "wake", InstanceID: "b", DurationMS: 12}},
	TotalMS: 13,
}

func TestASwapIsAnsweredWhenItIsOver(t *testing.T) {
	r := newRig(t)
	for _, outcome := range []string{launcherapi.OutcomeDone, launcherapi.OutcomeNoop, launcherapi.OutcomeDryRun} {
		want := result
		want.Outcome = outcome
		r.swaps.Next(apitest.Over(want, nil), nil)
		got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"],"in":{"instance_id":"b"},"out":{"mode":"sleep","level":2},"drain_timeout":"5s","timeout":60,"canary":true}`, "Idempotency-Key", "key-1")
		require.Equal(t, http.StatusOK, got.status, got.body)
		assert.Equal(t, want, decode[launcherapi.SwapResult](t, got.body))
	}
	reqs, keys := r.swaps.Requests()
	req := reqs[0]
	assert.Equal(t, []string{"GPU-a"}, req.GPUUUIDs)
	assert.Equal(t, "b", req.In.InstanceID)
	assert.Equal(t, launcherapi.SwapOut{Mode: "sleep", Level: 2}, *req.Out)
	assert.Equal(t, 5*time.Second, req.DrainTimeout.D())
	assert.Equal(t, time.Minute, req.Timeout.D())
	assert.True(t, req.Canary)
	assert.Equal(t, []string{"key-1", "key-1", "key-1"}, keys)
}

func TestSwapsAreListedAndShown(t *testing.T) {
	r := newRig(t)
	now := launcherapi.Swap{
		SwapID: "swap-1", State: launcherapi.SwapRunning, GPUUUIDs: []string{"GPU-a"}, InstanceID: "b", Phase: "wake",
		BeganAt: time.Now().UTC().Truncate(time.Second), Deadline: time.Now().Add(time.Minute).UTC().Truncate(time.Second),
	}
	undone := result
	undone.Outcome = launcherapi.OutcomeUndone
	run := apitest.Over(undone, &launcher.SwapError{Phase: "healthy", Result: undone, Err: launcher.EngineTimeoutf("too slow")})
	run.Now = now
	r.swaps.Next(run, nil)
	assert.Equal(t, launcherapi.SwapList{Swaps: []launcherapi.Swap{now}}, decode[launcherapi.SwapList](t, r.do(t, http.MethodGet, "/v2/swaps", "").body))
	assert.Equal(t, now, decode[launcherapi.Swap](t, r.do(t, http.MethodGet, "/v2/swaps/swap-1", "").body))

	run.Now.State = launcherapi.SwapOver
	shown := decode[launcherapi.Swap](t, r.do(t, http.MethodGet, "/v2/swaps/swap-1", "").body)
	require.NotNil(t, shown.Problem)
	assert.Equal(t, result.Phases, shown.Problem.Phases)
	listed := decode[launcherapi.SwapList](t, r.do(t, http.MethodGet, "/v2/swaps", "").body).Swaps[0]
	assert.Equal(t, shown.Problem.Detail, listed.Problem.Detail)
	assert.Empty(t, listed.Problem.Phases, "a list of many is brief")
	assert.Equal(t, []any{launcherapi.CodeEngineTimeout, "healthy"}, []any{shown.Problem.Code, shown.Problem.FailedPhase})
	got := r.do(t, http.MethodGet, "/v2/swaps/swap-1?follow=true", "")
	assert.Equal(t, "application/x-ndjson", got.header.Get("Content-Type"))
	assert.Equal(t, launcherapi.ProgressProblem, decode[launcherapi.SwapProgress](t, got.body).Type)

	assert.Equal(t, http.StatusOK, r.do(t, http.MethodDelete, "/v2/swaps/swap-1", "").status)
	_, keys := r.swaps.Requests()
	assert.Equal(t, []string{"swap-1", "swap-1", "swap-1", "swap-1"}, keys)
	r.swaps.Next(nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no such swap"})
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		assert.Equal(t, http.StatusNotFound, r.do(t, method, "/v2/swaps/swap-1", "").status, method)
	}
}

func TestSwapIsToldGoCommitAndUndo(t *testing.T) {
	r := newRig(t)
	run := apitest.NewSwapRun(result)
	run.Now = launcherapi.Swap{SwapID: "swap-1", State: launcherapi.SwapRunning, GPUUUIDs: []string{"GPU-a"}, Phase: launcherapi.PhaseCommit}
	undone := result
	undone.Outcome = launcherapi.OutcomeUndone
	for _, word := range []string{"go", "commit", "undo"} {
		r.swaps.Next(run, nil)
		got := r.do(t, http.MethodPost, "/v2/swaps/swap-1/"+word, "")
		assert.Equal(t, http.StatusOK, got.status, word)
		assert.Equal(t, run.Now, decode[launcherapi.Swap](t, got.body))
		r.swaps.Next(nil, launcher.Conflictf("it is committed"))
		assert.Equal(t, http.StatusConflict, r.do(t, http.MethodPost, "/v2/swaps/swap-1/"+word, "").status, word)
		if word == "undo" {
			continue // has no effect on a swap that has failed
		}
		r.swaps.Next(nil, &launcher.SwapError{Phase: "commit", Result: undone, Err: launcher.EngineTimeoutf("too late")})
		got = r.do(t, http.MethodPost, "/v2/swaps/swap-1/"+word, "")
		assert.Equal(t, []any{http.StatusGatewayTimeout, launcherapi.OutcomeUndone}, []any{got.status, got.problem(t).Outcome}, word)
	}
	_, keys := r.swaps.Requests()
	assert.Equal(t, []string{"go swap-1", "commit swap-1", "undo swap-1"}, slices.Compact(keys))
	assert.Equal(t, http.StatusNotFound, r.do(t, http.MethodPost, "/v2/swaps/swap-1/other", "").status)
}

func TestARefusedSwapHasTheStatusOfItsReason(t *testing.T) {
	r := newRig(t)
	fit := launcherapi.Fit{GPUUUID: "GPU-a", Bound: "device_memory", Needed: 10, Available: 5, Limit: 80, Holders: []launcherapi.GPUHolder{{InstanceID: "a", State: "awake"}}}
	for _, test := range []struct {
		err    error
		status int
	}{
		{launcher.DoesNotFit(fit, "a holds GPU-a"), 409},
		{launcher.Conflictf("in lives on other GPUs"), 409},
		{launcher.NotFound("b"), 404},
		{launcher.Invalidf("body.in", "which one?"), 422},
		{&launcher.Error{Code: launcherapi.CodeKeyReused, Detail: "another request"}, 422},
		{launcher.Unavailablef("closing"), 503},
	} {
		// What is wrong with the request comes from Begin, the rest from the run.
		r.swaps.Next(nil, test.err)
		got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`)
		assert.Equal(t, test.status, got.status)
		r.swaps.Next(apitest.Over(result, test.err), nil)
		got = r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`)
		assert.Equal(t, test.status, got.status)
		problem := got.problem(t)
		assert.Empty(t, problem.Outcome)
		if launcher.CodeOf(test.err) == launcherapi.CodeDoesNotFit {
			assert.Equal(t, fit, *problem.Fit)
		}
	}
}

func TestAnUndoneSwapTellsWhatFailedAndWhy(t *testing.T) {
	r := newRig(t)
	code := -9
	died := &launcher.Error{Code: launcherapi.CodeEngineFailed, Detail: "it died", InstanceID: "b", ExitCode: &code, FailureCause: "killed", LastLogLines: []string{"oh"}}
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
		cause  string
	}{
		"an engine that fails is a 502":               {died, 502, launcherapi.CodeEngineFailed, "killed"},
		"an engine that takes too long is a 504":      {launcher.EngineTimeoutf("too slow"), 504, launcherapi.CodeEngineTimeout, ""},
		"a conflict on the way is no conflict":        {launcher.PortTakenf("port 8000 is taken"), 502, launcherapi.CodeEngineFailed, "port_taken"},
		"an error of no kind is a 502":                {errors.New("odd"), 502, launcherapi.CodeEngineFailed, ""},
		"what does not fit on the way is no conflict": {launcher.DoesNotFit(launcherapi.Fit{Bound: "device_memory"}, "no room"), 502, launcherapi.CodeEngineFailed, "does_not_fit"},
	} {
		t.Run(name, func(t *testing.T) {
			undone := result
			undone.Outcome, undone.Evicted, undone.Cut = launcherapi.OutcomeUndone, []string{"c"}, 2
			undone.Out = []launcherapi.Instance{{InstanceID: "a", State: "awake", Status: "running", ServedModelNames: []string{}}}
			r.swaps.Next(apitest.Over(undone, &launcher.SwapError{Phase: "healthy", Result: undone, Err: test.err}), nil)
			got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`)
			assert.Equal(t, test.status, got.status)
			p := got.problem(t)
			assert.Equal(t, test.status, p.Status)
			assert.Equal(t, test.code, p.Code)
			assert.Equal(t, test.cause, p.Cause)
			assert.Equal(t, "undone", p.Outcome)
			assert.Equal(t, "healthy", p.FailedPhase)
			assert.Equal(t, "swap-1", p.SwapID)
			assert.Equal(t, undone.Phases, p.Phases)
			assert.Equal(t, []string{"c"}, p.Evicted)
			assert.Equal(t, 2, p.Cut)
			assert.Equal(t, "a", p.Out[0].InstanceID)
			assert.Contains(t, p.Detail, "healthy")
			assert.Contains(t, p.Detail, test.err.Error())
			if test.err == died { //nolint:errorlint // the very one
				assert.Equal(t, -9, *p.ExitCode)
				assert.Equal(t, []string{"oh"}, p.LastLogLines)
				assert.Equal(t, "b", p.InstanceID)
			}
		})
	}
}

func TestASwapThatCameToNothingSaysWhatBecameOfIt(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		outcome string
		err     error
		status  int
	}{
		{launcherapi.OutcomeRefused, launcher.Conflictf("in lives on other GPUs"), 409},
		{launcherapi.OutcomeRefused, launcher.EngineTimeoutf("the swap ran out of time"), 504},
		{launcherapi.OutcomeInterrupted, launcher.Unavailablef("closing"), 503},
		{launcherapi.OutcomeUndone, launcher.Conflictf("on the way"), 502},
		{launcherapi.OutcomeUndoFailed, launcher.EngineTimeoutf("too slow"), 504},
	} {
		came := result
		came.Outcome = c.outcome
		failed := &launcher.SwapError{Phase: "sleep", Result: came, Err: c.err}
		if c.outcome == launcherapi.OutcomeUndoFailed {
			failed.Undo = errors.New("a is sleeping")
		}
		r.swaps.Next(apitest.Over(came, failed), nil)
		got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`)
		assert.Equal(t, c.status, got.status, c.outcome)
		p := got.problem(t)
		assert.Equal(t, c.outcome, p.Outcome)
		assert.Equal(t, "swap-1", p.SwapID)
		assert.Equal(t, "sleep", p.FailedPhase)
		if failed.Undo != nil {
			assert.Contains(t, p.Detail, "a is sleeping", "who is left how")
		}
		r.swaps.Next(nil, failed)
		assert.Equal(t, c.outcome, r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`).problem(t).Outcome)
	}
}

func TestASwapIsStreamedStepByStep(t *testing.T) {
	started := launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, SwapID: "swap-1", Phase: "admit"}
	over := launcherapi.SwapProgress{Type: launcherapi.ProgressResult, SwapID: "swap-1", Result: &result}
	r := newRig(t)
	run := apitest.NewSwapRun(result)
	r.swaps.Next(run, nil)
	resp := r.open(t, context.Background(), http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`, "Accept", "application/x-ndjson")
	defer resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	lines := bufio.NewReader(resp.Body)
	for _, step := range []launcherapi.SwapProgress{started, over} {
		run.Steps <- step // each is there before the next one happens
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, step, decode[launcherapi.SwapProgress](t, line))
	}
	close(run.Steps)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	assert.Empty(t, rest, "the result is the last line")
}

func TestAStreamedSwapThatFailsEndsWithTheProblem(t *testing.T) {
	r := newRig(t)
	undone := result
	undone.Outcome = launcherapi.OutcomeUndone
	for _, failure := range []error{
		&launcher.SwapError{Phase: "wake", Result: undone, Err: launcher.EngineTimeoutf("too slow")},
		launcher.Conflictf("in lives on other GPUs"),
	} {
		r.swaps.Next(apitest.Over(result, failure), nil)
		got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`, "Accept", "application/x-ndjson")
		assert.Equal(t, http.StatusOK, got.status)
		last := decode[launcherapi.SwapProgress](t, got.body)
		assert.Equal(t, launcherapi.ProgressProblem, last.Type)
		assert.Equal(t, "swap-1", last.SwapID)
		assert.Equal(t, launcher.CodeOf(failure), last.Problem.Code)
	}
}

func TestASwapIsStreamedAsServerSentEvents(t *testing.T) {
	r := newRig(t)
	run := apitest.NewSwapRun(result)
	r.swaps.Next(run, nil)
	run.Steps <- launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, SwapID: "swap-1", Phase: "admit"}
	close(run.Steps)
	got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`, "Accept", "text/event-stream")
	event, data, _ := strings.Cut(got.body, "\n")
	assert.Equal(t, "event: phase_started", event)
	data, found := strings.CutPrefix(strings.TrimSpace(data), "data: ")
	assert.True(t, found)
	assert.True(t, json.Valid([]byte(data)))
}

func TestASwapWhoseRequestIsWrongIsNotStreamed(t *testing.T) {
	r := newRig(t)
	r.swaps.Next(nil, launcher.NotFound("b"))
	got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`, "Accept", "application/x-ndjson")
	assert.Equal(t, http.StatusNotFound, got.status)
	got.problem(t)
}

func TestAStreamedSwapTellsThatTheLauncherCloses(t *testing.T) {
	r := newRig(t)
	addr, _ := r.serve(t)
	r.swaps.Next(apitest.NewSwapRun(result), nil)
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+swapPath, strings.NewReader(`{"gpu_uuids":["GPU-a"]}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := r.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, r.api.Shutdown(ctx), "a swap is waited for until then")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, launcherapi.CodeUnavailable, decode[launcherapi.SwapProgress](t, string(body)).Problem.Code)
}

func TestAClientThatLeavesIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		run := apitest.NewSwapRun(result)
		r.swaps.Next(run, nil)
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+swapPath, strings.NewReader(`{"gpu_uuids":["GPU-a"]}`))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", accept)
			if resp, err := r.client.Do(req); err == nil {
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
		}()
		run.Steps <- launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, SwapID: "swap-1", Phase: "admit"}
		assert.Eventually(t, func() bool { return len(run.Steps) == 0 }, patience.Wait(), time.Millisecond)
		cancel()
		<-gone
		select {
		case <-run.Left: // the handler stopped waiting; the run itself was told nothing
		case <-time.After(patience.Wait()):
			t.Fatal("the handler still waits")
		}
	}
}

func TestASwapInATraceIsLoggedWithTheTracesID(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *api.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for header, logged := range map[string]bool{
		"00-" + id + "-00f067aa0ba902b7-01":       true,
		"cc-" + id + "-00f067aa0ba902b7-01-later": true,
		"00-" + id + "-00f067aa0ba902b7":          false,
		"nonsense":                                false,
	} {
		log.Reset()
		r.swaps.Next(apitest.Over(result, nil), nil)
		got := r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["GPU-a"]}`, "traceparent", header)
		require.Equal(t, http.StatusOK, got.status, "a header that is no traceparent is ignored")
		assert.Equal(t, logged, strings.Contains(log.String(), `"trace_id":"`+id+`"`), "%s: %s", header, log.String())
	}
}
