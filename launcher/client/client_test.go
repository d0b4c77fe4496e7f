package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEveryOperationHasItsMethod(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	service, err := c.Service(ctx)
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ServiceName, service.Name)
	require.NoError(t, c.Health(ctx))
	require.NoError(t, c.Ready(ctx))
	metrics, err := c.Metrics(ctx)
	require.NoError(t, err)
	assert.Equal(t, "up 1\n", string(metrics))
	document, err := c.OpenAPI(ctx)
	require.NoError(t, err)
	assert.Contains(t, string(document), `"openapi": "3.1.0"`)

	made, err := c.Create(ctx, "a", spec("--model m"))
	require.NoError(t, err)
	assert.Equal(t, "starting", made.State)
	other, err := c.Create(ctx, "", spec("--model m"))
	require.NoError(t, err)
	assert.NotEmpty(t, other.InstanceID)
	got, err := c.Get(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, made, got)
	list, err := c.List(ctx)
	require.NoError(t, err)
	assert.Equal(t, 2, list.TotalInstances)
	ids, err := c.ListIDs(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", other.InstanceID}, ids.InstanceIDs)

	drain, no := launcherapi.Duration(90*time.Second), false
	asleep, err := c.Sleep(ctx, "a", launcherapi.SleepRequest{Level: 2, DrainTimeout: &drain})
	require.NoError(t, err)
	assert.Equal(t, "sleeping", asleep.State)
	assert.Contains(t, h.instances.Record(), `sleep "a" level=2 drain=1m30s limit=0s`)
	waking, err := c.Wake(ctx, "a", launcherapi.WakeRequest{Wait: &no})
	require.NoError(t, err)
	assert.Equal(t, "waking", waking.State)

	lease, err := c.LeasePorts(ctx, "p", 2)
	require.NoError(t, err)
	assert.Equal(t, []int{40000, 40001}, lease.Ports)
	given, err := c.GiveBackPorts(ctx, "p")
	require.NoError(t, err)
	assert.Equal(t, lease, given)

	gpus, err := c.GPUs(ctx)
	require.NoError(t, err)
	assert.Equal(t, "GPU-a", gpus.GPUs[0].UUID)
	gone, err := c.Delete(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, launcherapi.StatusStopped, gone.Status)
	all, err := c.DeleteAll(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, all.TotalStopped)
}

func TestAnIDNeedsNoEscaping(t *testing.T) {
	h := newHost(t)
	for _, id := range []string{"a/b", "../x", "a b", "100%", "ä", "a?b#c"} {
		_, err := h.client(t).Get(within(t), id)
		problem, ok := errors.AsType[*launcher.Error](err)
		require.True(t, ok, err)
		assert.Equal(t, id, problem.InstanceID)
	}
}

func TestAnErrorComesBackAsItWas(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	for code, is := range map[string]func(error) bool{
		launcherapi.CodeInvalid: client.IsInvalid, launcherapi.CodeNotFound: client.IsNotFound, launcherapi.CodeExists: client.IsExists,
		launcherapi.CodeConflict: client.IsConflict, launcherapi.CodePortTaken: client.IsPortTaken, launcherapi.CodeDoesNotFit: client.DoesNotFit,
		launcherapi.CodeGone: client.IsGone, launcherapi.CodeEngineFailed: client.IsEngineFailed, launcherapi.CodeEngineTimeout: client.IsEngineTimeout,
		launcherapi.CodeUnavailable: client.IsUnavailable, launcherapi.CodeUnauthorized: client.IsUnauthorized,
	} {
		exit := -9
		want := &launcher.Error{
			Code: code, Detail: "because", InstanceID: "a", ExitCode: &exit, FailureCause: "killed", LastLogLines: []string{"oh"},
			Fit: &launcherapi.Fit{Bound: "device_memory", Needed: 2}, Location: "body.in",
		}
		h.instances.FailNext(want)
		_, err := c.Get(ctx, "a")
		got, ok := errors.AsType[*launcher.Error](err)
		require.True(t, ok, err)
		assert.Equal(t, want, got)
		assert.True(t, is(err), code)
		assert.Equal(t, code == launcherapi.CodeNotFound, client.IsNotFound(err))
		assert.False(t, is(errors.New("another")))
	}
}

func TestAnAnswerThatIsNoProblemDocumentHasACodeByItsStatus(t *testing.T) {
	status, body := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL, HTTPClient: server.Client()})
	require.NoError(t, err)
	for _, test := range []struct {
		status     int
		body, code string
	}{
		{404, "<html>nothing here", launcherapi.CodeNotFound},
		{502, "bad gateway", launcherapi.CodeEngineFailed},
		{503, `{"status":"closing"}`, launcherapi.CodeUnavailable},
		{409, `{"detail":"Instance with ID a already exists"}`, launcherapi.CodeConflict},
		{422, `{"detail":[{"msg":"field required"}]}`, launcherapi.CodeInvalid},
		{418, "", launcherapi.CodeInvalid},
		{599, "", launcherapi.CodeInternal},
	} {
		status, body = test.status, test.body
		_, err := c.Get(within(t), "a")
		assert.Equal(t, test.code, launcher.CodeOf(err), test.status)
		assert.NotEmpty(t, err.Error())
	}
	status, body = 404, `{"error":{"message":"there is no such path"}}`
	_, err = c.Get(within(t), "a")
	assert.EqualError(t, err, strings.TrimPrefix(server.URL, "http://")+" answers 404 Not Found, and not as a launcher does: "+body)
}

func TestReadinessIsAnErrorWhileTheLauncherIsNotReady(t *testing.T) {
	h := newHost(t)
	h.ready.Status = launcherapi.ClosingStatus
	assert.True(t, client.IsUnavailable(h.client(t).Ready(within(t))))
}

func TestALauncherThatIsNotThereIsToldApart(t *testing.T) {
	h := newHost(t)
	h.down(t)
	_, err := h.client(t).List(within(t))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Empty(t, launcher.CodeOf(err))
}

func TestTheTokenGoesAlong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("s3cret\n"), 0o600))
	h := newHost(t)
	h.down(t)
	var err error
	h.token, err = api.OpenTokenFile(path)
	require.NoError(t, err)
	h.up(t)
	_, err = h.client(t).List(within(t))
	assert.True(t, client.IsUnauthorized(err))
	c, err := client.New(client.Options{Server: "http://" + h.addr + "/", Token: "s3cret"})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.List(within(t))
	require.NoError(t, err)
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	for _, address := range []string{"", "ftp://x", "http://", "http://a b", "unix:///run/x"} {
		_, err := client.New(client.Options{Server: address})
		require.ErrorContains(t, err, "cannot use the address", address)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	h := newHost(t)
	c := h.client(t)
	_, err := c.Create(within(t), "a", spec("m"))
	require.NoError(t, err)
	h.instances.Hold(make(chan struct{}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Sleep(ctx, "a", launcherapi.SleepRequest{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

var done = launcherapi.SwapResult{
	SwapID: "swap-1", Outcome: launcherapi.OutcomeDone, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{{Name: "wake", DurationMS: 3}}, TotalMS: 4,
}

func TestASwapGivesItsResult(t *testing.T) {
	h := newHost(t)
	c := h.client(t)
	step := launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, SwapID: "swap-1", Phase: "admit"}
	for _, streamed := range []bool{false, true} {
		run := apitest.NewSwapRun(done)
		run.Steps <- step
		run.Steps <- launcherapi.SwapProgress{Type: launcherapi.ProgressResult, SwapID: "swap-1", Result: &done}
		close(run.Steps)
		h.swaps.Next(run, nil)
		var steps []launcherapi.SwapProgress
		var progress func(launcherapi.SwapProgress)
		if streamed {
			progress = func(p launcherapi.SwapProgress) { steps = append(steps, p) }
		}
		got, err := c.SwapOnce(within(t), "key-1", launcherapi.SwapRequest{GPUUUIDs: []string{"GPU-a"}}, progress)
		require.NoError(t, err)
		assert.Equal(t, done, got)
		if streamed {
			assert.Equal(t, []launcherapi.SwapProgress{step}, steps)
		}
	}
	reqs, keys := h.swaps.Requests()
	assert.Equal(t, []string{"GPU-a"}, reqs[0].GPUUUIDs)
	assert.Equal(t, []string{"key-1", "key-1"}, keys)
}

func TestSwapIsFollowedWithoutProgress(t *testing.T) {
	h := newHost(t)
	run := apitest.NewSwapRun(done)
	run.Steps <- launcherapi.SwapProgress{Type: launcherapi.ProgressStarted, SwapID: "swap-1", Phase: "admit"}
	run.Steps <- launcherapi.SwapProgress{Type: launcherapi.ProgressResult, SwapID: "swap-1", Result: &done}
	close(run.Steps)
	h.swaps.Next(run, nil)
	got, err := h.client(t).FollowSwap(within(t), "swap-1", nil)
	require.NoError(t, err)
	assert.Equal(t, done, got)
}

func TestSwapIsToldGoCommitAndUndo(t *testing.T) {
	h := newHost(t)
	c := h.client(t)
	run := apitest.NewSwapRun(done)
	run.Now = launcherapi.Swap{SwapID: "swap-1", State: launcherapi.SwapRunning, GPUUUIDs: []string{}, Phase: launcherapi.PhaseCommit}
	for name, tell := range map[string]func(context.Context, string) (launcherapi.Swap, error){"go": c.GoSwap, "commit": c.CommitSwap, "undo": c.UndoSwap} {
		h.swaps.Next(run, nil)
		got, err := tell(within(t), "swap-1")
		require.NoError(t, err, name)
		assert.Equal(t, run.Now, got, name)
		h.swaps.Next(nil, launcher.Conflictf("it is committed"))
		_, err = tell(within(t), "swap-1")
		assert.True(t, client.IsConflict(err), name)
		_, keys := h.swaps.Requests()
		assert.Equal(t, name+" swap-1", keys[len(keys)-1])
	}
}

func TestAnUndoneSwapTellsAllAboutIt(t *testing.T) {
	h := newHost(t)
	c := h.client(t)
	undone := done
	undone.Outcome = launcherapi.OutcomeUndone
	for _, progress := range []func(launcherapi.SwapProgress){nil, func(launcherapi.SwapProgress) {}} {
		h.swaps.Next(apitest.Over(undone, &launcher.SwapError{Phase: "wake", Result: undone, Err: launcher.EngineTimeoutf("too slow")}), nil)
		_, err := c.Swap(within(t), launcherapi.SwapRequest{GPUUUIDs: []string{"GPU-a"}}, progress)
		failed, ok := errors.AsType[*client.UndoneError](err)
		require.True(t, ok, err)
		assert.Equal(t, "wake", failed.Phase)
		assert.Equal(t, undone.Phases, failed.Result.Phases)
		assert.Equal(t, launcherapi.OutcomeUndone, failed.Result.Outcome)
		assert.True(t, client.IsEngineTimeout(err))
		assert.Contains(t, err.Error(), "too slow")

		h.swaps.Next(nil, &launcher.SwapError{Result: launcherapi.SwapResult{SwapID: "swap-2", Outcome: launcherapi.OutcomeRefused}, Err: launcher.Conflictf("not there")})
		_, err = c.Swap(within(t), launcherapi.SwapRequest{GPUUUIDs: []string{"GPU-a"}}, progress)
		assert.True(t, client.IsConflict(err))
		_, ok = errors.AsType[*client.UndoneError](err)
		assert.False(t, ok)
		refused, ok := errors.AsType[*launcher.Error](err)
		require.True(t, ok, err)
		assert.Equal(t, "swap-2", refused.SwapID)
	}
}

func TestASwapThatBreaksOffSaysThatItGoesOn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"phase_started","swap_id":"s","phase":"admit"}`+"\n")
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Swap(within(t), launcherapi.SwapRequest{}, func(launcherapi.SwapProgress) {})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "goes on")
}

func TestALogIsReadInParts(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	_, err := c.Create(ctx, "a", spec("m"))
	require.NoError(t, err)
	var whole strings.Builder
	require.NoError(t, c.CopyLog(ctx, "a", 0, &whole), "an empty log is no error")
	h.writeLog(t, "a", strings.Repeat("0123456789", 250_000))
	part, err := c.Log(ctx, "a", 2, 4)
	require.NoError(t, err)
	assert.Equal(t, client.LogPart{Bytes: []byte("234"), First: 2, Total: 2_500_000}, part)
	_, err = c.Log(ctx, "a", 2_500_000, -1)
	assert.Equal(t, launcherapi.CodeRange, launcher.CodeOf(err))
	require.NoError(t, c.CopyLog(ctx, "a", 5, &whole), "more than one read gives")
	assert.Equal(t, 2_500_000-5, whole.Len())
	assert.True(t, strings.HasPrefix(whole.String(), "56789012"))
	assert.True(t, client.IsNotFound(c.CopyLog(ctx, "none", 0, &whole)))
}

func TestACallHasTheHeadersOfItsContext(t *testing.T) {
	type key struct{}
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("traceparent")
		_, _ = io.WriteString(w, `{"swap_id":"s","outcome":"done","out":[],"phases":[]}`)
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Server: server.URL, Header: func(ctx context.Context) map[string]string {
		of, _ := ctx.Value(key{}).(string)
		return map[string]string{"traceparent": of}
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.SwapOnce(context.WithValue(within(t), key{}, "00-trace"), "k", launcherapi.SwapRequest{}, nil)
	require.NoError(t, err)
	assert.Equal(t, "00-trace", <-got)
}
