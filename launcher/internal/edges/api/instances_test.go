package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestACreateIsPassedOnAndAnsweredAtOnce(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodPut, instancesPath+"/my-id", `{"options":"--model m","gpu_uuids":["GPU-a","GPU-b"],"annotations":{"hotseat.dev/pinned":"true"},"env_vars":{"A":"b","KEY":{"from_file":"/run/secrets/key"}}}`)
	require.Equal(t, http.StatusCreated, got.status)
	made := decode[launcherapi.Instance](t, got.body)
	assert.Equal(t, "my-id", made.InstanceID)
	assert.Equal(t, launcherapi.StatusRunning, made.Status)
	assert.Equal(t, "starting", made.State)
	assert.Equal(t, []string{"GPU-a", "GPU-b"}, made.GPUUUIDs)
	assert.Equal(t, "/run/secrets/key", made.EnvVars["KEY"].FromFile)
	assert.Equal(t, []string{`create "my-id" gpus=[GPU-a GPU-b] pinned=true`}, r.instances.Record())

	got = r.do(t, http.MethodPost, instancesPath, `{"args":["--model","m"]}`)
	require.Equal(t, http.StatusCreated, got.status)
	assert.NotEmpty(t, decode[launcherapi.Instance](t, got.body).InstanceID)
}

func TestAnIDThatIsTakenIsAConflict(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	got := r.do(t, http.MethodPut, instancesPath+"/a", `{"options":"x"}`)
	assert.Equal(t, http.StatusConflict, got.status)
	assert.Equal(t, launcherapi.CodeExists, got.problem(t).Code)
	assert.Equal(t, "Instance with ID a already exists", got.problem(t).Detail)
}

func TestAnIDIsUnescapedOnce(t *testing.T) {
	r := newRig(t)
	for escaped, id := range map[string]string{"a%2Fb": `a/b`, "..%2F..%2Fetc": `../../etc`, "%252F": `%2F`, "a%20b": `a b`} {
		got := r.do(t, http.MethodGet, instancesPath+"/"+escaped, "")
		assert.Equal(t, http.StatusNotFound, got.status, escaped)
		assert.Equal(t, id, got.problem(t).InstanceID)
	}
}

func TestAnInstanceIsShownAndDeleted(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	got := r.do(t, http.MethodGet, instancesPath+"/a", "")
	require.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, "a", decode[launcherapi.Instance](t, got.body).InstanceID)
	got = r.do(t, http.MethodDelete, instancesPath+"/a", "")
	require.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, launcherapi.StatusStopped, decode[launcherapi.Instance](t, got.body).Status)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		got = r.do(t, method, instancesPath+"/a", "")
		assert.Equal(t, http.StatusNotFound, got.status)
		assert.Equal(t, "Instance a not found", got.problem(t).Detail)
	}
}

func TestAListHoldsARevisionWithAndWithoutDetail(t *testing.T) {
	r := newRig(t)
	assert.JSONEq(t, `{"revision":0,"total_instances":0,"running_instances":0,"instances":[]}`, r.do(t, http.MethodGet, instancesPath, "").body)
	r.create(t, "a")
	r.create(t, "b")
	list := decode[launcherapi.InstanceList](t, r.do(t, http.MethodGet, instancesPath+"?detail=True", "").body)
	assert.Equal(t, uint64(2), list.Revision)
	assert.Equal(t, 2, list.TotalInstances)
	assert.Equal(t, 2, list.RunningInstances)
	assert.Equal(t, "b", list.Instances[1].InstanceID)
	for _, no := range []string{"false", "False", "0"} {
		assert.JSONEq(t, `{"revision":2,"instance_ids":["a","b"],"count":2}`, r.do(t, http.MethodGet, instancesPath+"?detail="+no, "").body)
	}
}

func TestDeletingAllTellsWhatWasStopped(t *testing.T) {
	r := newRig(t)
	assert.JSONEq(t, `{"status":"all_stopped","stopped_instances":[],"total_stopped":0}`, r.do(t, http.MethodDelete, instancesPath, "").body)
	r.create(t, "a")
	r.create(t, "b")
	got := decode[launcherapi.StoppedList](t, r.do(t, http.MethodDelete, instancesPath, "").body)
	assert.Equal(t, "all_stopped", got.Status)
	assert.Equal(t, 2, got.TotalStopped)
	assert.Len(t, got.StoppedInstances, 2)
}

func TestVerbsPassOnWhatWasAsked(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for _, test := range []struct {
		verb, body string
		status     int
		state      string
		calls      []string
	}{
		{"sleep", ``, 200, "sleeping", []string{`sleep "a" level=0 drain=-1ns limit=0s`, `await "a" sleeping`}},
		{"sleep", `{}`, 200, "sleeping", []string{`sleep "a" level=0 drain=-1ns limit=0s`, `await "a" sleeping`}},
		{"sleep", `{"level":2,"drain_timeout":"1m30s","timeout":2.5}`, 200, "sleeping", []string{`sleep "a" level=2 drain=1m30s limit=2.5s`, `await "a" sleeping`}},
		{"sleep", `{"drain_timeout":0,"wait":true}`, 200, "sleeping", []string{`sleep "a" level=0 drain=-1ns limit=0s`, `await "a" sleeping`}},
		{"sleep", `{"wait":false}`, 202, "falling_asleep", []string{`sleep "a" level=0 drain=-1ns limit=0s`}},
		{"wake", ``, 200, "awake", []string{`wake "a" level=0 drain=0s limit=0s`, `await "a" awake`}},
		{"wake", `{"timeout":"3s"}`, 200, "awake", []string{`wake "a" level=0 drain=0s limit=3s`, `await "a" awake`}},
		{"wake", `{"wait":false}`, 202, "waking", []string{`wake "a" level=0 drain=0s limit=0s`}},
	} {
		before := len(r.instances.Record())
		got := r.do(t, http.MethodPost, instancesPath+"/a/"+test.verb, test.body)
		require.Equal(t, test.status, got.status, got.body)
		assert.Equal(t, test.state, decode[launcherapi.Instance](t, got.body).State)
		assert.Equal(t, test.calls, r.instances.Record()[before:], test.body)
	}
	assert.Equal(t, http.StatusNotFound, r.do(t, http.MethodPost, instancesPath+"/b/wake", "").status)
}

func TestEveryKindOfErrorHasItsStatus(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.client = r.Client() // which holds nothing against the document: a GET comes to few of these
	for code, status := range map[string]int{
		launcherapi.CodeInvalid: 422, launcherapi.CodeNotFound: 404, launcherapi.CodeExists: 409, launcherapi.CodeConflict: 409,
		launcherapi.CodePortTaken: 409, launcherapi.CodeDoesNotFit: 409, launcherapi.CodeInternal: 500, launcherapi.CodeNoAccess: 500, launcherapi.CodeEngineFailed: 502,
		launcherapi.CodeUnavailable: 503, launcherapi.CodeEngineTimeout: 504, launcherapi.CodeStorage: 507, launcherapi.CodeTooMany: 429,
	} {
		r.instances.FailNext(&launcher.Error{Code: code, Detail: "because"})
		got := r.do(t, http.MethodGet, instancesPath+"/a", "")
		assert.Equal(t, status, got.status, code)
		assert.Equal(t, launcherapi.Problem{Title: http.StatusText(status), Status: status, Detail: "because", Code: code}, got.problem(t))
	}
	r.instances.FailNext(errors.New("something else"))
	got := r.do(t, http.MethodGet, instancesPath+"/a", "")
	assert.Equal(t, http.StatusInternalServerError, got.status)
	assert.Equal(t, launcherapi.CodeInternal, got.problem(t).Code)
}

func TestTheFactsOfAnErrorGoAlong(t *testing.T) {
	r := newRig(t)
	code := -9
	r.instances.FailNext(&launcher.Error{
		Code: launcherapi.CodeEngineFailed, Detail: "it died", InstanceID: "a", ExitCode: &code, FailureCause: "killed", LastLogLines: []string{"oh"},
	})
	got := r.do(t, http.MethodPost, instancesPath+"/a/wake", "").problem(t)
	assert.Equal(t, "a", got.InstanceID)
	assert.Equal(t, -9, *got.ExitCode)
	assert.Equal(t, "killed", got.Cause)
	assert.Equal(t, []string{"oh"}, got.LastLogLines)

	r.instances.FailNext(launcher.Invalidf("body.gpu_uuids[1]", "unknown GPU UUID %q", "GPU-z"))
	answer := r.do(t, http.MethodPost, instancesPath, `{"options":"x","gpu_uuids":["GPU-a","GPU-z"]}`)
	assert.Equal(t, http.StatusUnprocessableEntity, answer.status)
	assert.Equal(t, []launcherapi.ProblemDetail{{Message: `unknown GPU UUID "GPU-z"`, Location: "body.gpu_uuids[1]"}}, answer.problem(t).Errors)

	r.instances.FailNext(launcher.DoesNotFit(launcherapi.Fit{GPUUUID: "GPU-a", Bound: "device_memory", Needed: 3, Available: 2, Limit: 5, Holders: []launcherapi.GPUHolder{{InstanceID: "b", State: "awake", Bytes: 3}}}, "no room"))
	fit := r.do(t, http.MethodPost, instancesPath+"/a/wake", "").problem(t).Fit
	require.NotNil(t, fit)
	assert.Equal(t, uint64(3), fit.Needed)
	assert.Equal(t, "b", fit.Holders[0].InstanceID)
}

func TestAClientThatLeavesDoesNotHoldAVerb(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.instances.Hold(make(chan struct{}))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+instancesPath+"/a/sleep", nil)
	require.NoError(t, err)
	_, err = r.client.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	// The cleanup of the rig waits for the handler; it would not end.
}

func TestTheAnswersHaveWhatTheClientsOfTheLlmdLauncherRead(t *testing.T) {
	type instance struct {
		ID          string            `json:"instance_id"`
		Status      string            `json:"status"`
		Options     string            `json:"options"`
		GPUs        []string          `json:"gpu_uuids"`
		Environment map[string]string `json:"env_vars"`
		Annotations map[string]string `json:"annotations"`
		Revision    int               `json:"revision"`
	}
	r := newRig(t)
	const body = `{"options":"--model m --port 8000","gpu_uuids":["GPU-a"],"env_vars":{"A":"b"},"annotations":{"isc-name":"x"}}`
	want := instance{"a", "running", "--model m --port 8000", []string{"GPU-a"}, map[string]string{"A": "b"}, map[string]string{"isc-name": "x"}, 1}
	read := func(text string, into any) { require.NoError(t, json.Unmarshal([]byte(text), into)) }

	var one instance
	read(r.do(t, http.MethodPut, instancesPath+"/a", body).body, &one)
	assert.Equal(t, want, one)
	read(r.do(t, http.MethodGet, instancesPath+"/a", "").body, &one)
	assert.Equal(t, want, one)
	var list struct {
		Total     int        `json:"total_instances"`
		Running   int        `json:"running_instances"`
		Instances []instance `json:"instances"`
	}
	read(r.do(t, http.MethodGet, instancesPath, "").body, &list)
	assert.Equal(t, []instance{want}, list.Instances)
	assert.Equal(t, []int{1, 1}, []int{list.Total, list.Running})
	var event struct {
		Type   string   `json:"type"`
		Object instance `json:"object"`
	}
	line, err := r.watch(t, "").ReadString('\n')
	require.NoError(t, err)
	read(line, &event)
	assert.Equal(t, "CREATED", event.Type)
	assert.Equal(t, want, event.Object)
	want.Status, want.Revision = "stopped", 2
	read(r.do(t, http.MethodDelete, instancesPath+"/a", "").body, &one)
	assert.Equal(t, want, one)
	var failure struct {
		Detail string `json:"detail"`
	}
	read(r.do(t, http.MethodDelete, instancesPath+"/a", "").body, &failure)
	assert.Equal(t, "Instance a not found", failure.Detail)
}
