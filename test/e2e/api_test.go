package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// The rows of the section "API" of spec/rows.md about instances: how
// they are created, what their engines are given, listing and deleting. Logs,
// watches, bad bodies and the document have files of their own.

const instances = "/v2/vllm/instances"

// procFile reads a file of a process that holds strings ended by zero bytes.
func procFile(t *testing.T, pid int, name string) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// variable gives a variable of a process's environment.
func variable(t *testing.T, pid int, name string) (value string, set bool) {
	t.Helper()
	for _, entry := range procFile(t, pid, "environ") {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// list gives all instances.
func (n *Node) list() launcherapi.InstanceList {
	n.t.Helper()
	a := n.Call("GET", instances, nil)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var list launcherapi.InstanceList
	a.Into(n.t, &list)
	return list
}

// empty checks that no instance and no engine exists.
func (n *Node) empty() {
	n.t.Helper()
	assert.Zero(n.t, n.list().TotalInstances)
	assert.Empty(n.t, engines(n.SimFS))
}

func TestAnInstanceIsCreatedWithAndWithoutVariables(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	spec := Spec("with", On(0), "--max-model-len", "1024")
	spec["env_vars"] = map[string]string{"COLOUR": "dark blue = navy", "EMPTY": ""}
	spec["annotations"] = map[string]string{"isc-name": "a", "inference-port": "8005"}
	with := n.Create("with", spec)
	assert.Equal(t, "with", with.InstanceID)
	assert.Equal(t, launcherapi.StatusRunning, with.Status)
	assert.Equal(t, "starting", with.State, "a create answers at once")
	assert.Equal(t, spec["args"], with.Args)
	assert.Equal(t, On(0), with.GPUUUIDs)
	assert.Equal(t, spec["annotations"], with.Annotations)
	assert.Equal(t, "vllm", with.Engine)
	assert.Equal(t, launcherapi.EnvValue{Value: "dark blue = navy"}, with.EnvVars["COLOUR"])
	assert.Positive(t, with.Port)
	with = n.Await("with", "awake")
	colour, _ := variable(t, with.PID, "COLOUR")
	assert.Equal(t, "dark blue = navy", colour)
	empty, set := variable(t, with.PID, "EMPTY")
	assert.True(t, set, "set to nothing is not unset")
	assert.Empty(t, empty)

	made := n.Call("POST", instances, map[string]any{"options": "without --served-model-name without", "gpu_uuids": On(1)})
	require.Equal(t, 201, made.Status, "%s", made.Body)
	without := made.Instance(t)
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-`, without.InstanceID, "the launcher makes an id")
	assert.Equal(t, "without --served-model-name without", *without.Options)
	assert.Nil(t, without.Args)
	without = n.Await(without.InstanceID, "awake")
	_, set = variable(t, without.PID, "COLOUR")
	assert.False(t, set)
	n.Ask(with, "hello")
	n.Ask(without, "hello")
}

func TestTwoCreatesWithOneIDAreAConflict(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	first := n.Awake("a", On(0))
	again := n.Call("PUT", instances+"/a", Spec("other", On(1)))
	p := again.Problem(t)
	assert.Equal(t, 409, p.Status)
	assert.Equal(t, launcherapi.CodeExists, p.Code)
	assert.Contains(t, p.Detail, "Instance with ID a already exists")
	assert.Equal(t, first, n.Get("a"), "nothing of it has changed")

	var all sync.WaitGroup
	statuses := make(chan int, 10)
	for k := range cap(statuses) {
		all.Go(func() {
			a, err := tryCall(context.Background(), "PUT", n.URL+instances+"/b", Spec(fmt.Sprint("m", k), On(1)))
			assert.NoError(t, err)
			statuses <- a.Status
		})
	}
	all.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	assert.Equal(t, map[int]int{201: 1, 409: 9}, count, "of ten at once one has it")
	assert.Equal(t, 2, n.list().TotalInstances)
}

func TestAnUnknownGPUIsNamed(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for method, path := range map[string]string{"POST": instances, "PUT": instances + "/a"} {
		p := n.Call(method, path, Spec("m", []string{GPU(0), "GPU-nobody"}, "-tp", "2")).Problem(t)
		assert.Equal(t, 422, p.Status)
		assert.Contains(t, p.Detail, `"GPU-nobody"`)
		assert.Contains(t, p.Detail, GPU(1), "it says what there is")
		require.Len(t, p.Errors, 1)
		assert.Equal(t, "body.gpu_uuids[1]", p.Errors[0].Location)
	}
	n.empty()
}

func TestTheGPUsMustBeAsManyAsTheArgumentsNeed(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for name, test := range map[string]struct {
		args []string
		gpus []string
		need string
	}{
		"two for tensor parallel, one named":     {[]string{"-tp", "2"}, On(0), "2 GPUs"},
		"two for pipeline parallel, one named":   {[]string{"--pipeline-parallel-size=2"}, On(0), "2 GPUs"},
		"two for data parallel, one named":       {[]string{"-dp", "2"}, On(0), "2 GPUs"},
		"one local rank of two, two named":       {[]string{"-dp", "2", "--data-parallel-size-local", "1"}, On(0, 1), "1 GPU"},
		"four for two by two, two named":         {[]string{"-tp", "2", "-pp", "2"}, On(0, 1), "4 GPUs"},
		"the last of two sizes counts":           {[]string{"-tp", "1", "--tensor-parallel-size", "2"}, On(0), "2 GPUs"},
		"one without any parallelism, two named": {nil, On(0, 1), "1 GPU"},
		"underscores in a flag are dashes":       {[]string{"--tensor_parallel_size", "2"}, On(0), "2 GPUs"},
		"two are needed, one is named twice":     {[]string{"-tp", "2"}, []string{GPU(0), GPU(0)}, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			p := n.Call("PUT", instances+"/a", Spec("m", test.gpus, test.args...)).Problem(t)
			assert.Equal(t, 422, p.Status)
			assert.Contains(t, p.Detail, test.need)
			require.NotEmpty(t, p.Errors)
			assert.Contains(t, p.Errors[0].Location, "body.gpu_uuids")
		})
	}
	n.empty()
}

func TestQuotedJSONInOptionsReachesTheEngineAsOneArgument(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	const document = `{"temperature": 0.5, "a b": "c  \"d\" $HOME *"}`
	a := n.Call("PUT", instances+"/a", map[string]any{
		"options": `some/model --override-generation-config '` + document + `' --served-model-name a "two words" b\ c`, "gpu_uuids": On(0),
	})
	require.Equal(t, 201, a.Status, "%s", a.Body)
	i := n.Await("a", "awake")
	argv := procFile(t, i.PID, "cmdline")
	at := slices.Index(argv, "--override-generation-config")
	require.GreaterOrEqual(t, at, 0, "%q", argv)
	assert.Equal(t, document, argv[at+1])
	assert.Equal(t, []string{"a", "two words", "b c"}, i.ServedModelNames)
	assert.Contains(t, argv, "two words")

	p := n.Call("PUT", instances+"/b", map[string]any{"options": `m --seed '1`}).Problem(t)
	assert.Equal(t, 422, p.Status, "a quote that is never closed")
}

func TestGPUUUIDsBecomeIndicesInTheOrderGiven(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Create("a", Spec("a", On(1, 0), "-tp", "2"))
	i := n.Await("a", "awake")
	visible, _ := variable(t, i.PID, "CUDA_VISIBLE_DEVICES")
	assert.Equal(t, "1,0", visible)
	order, _ := variable(t, i.PID, "CUDA_DEVICE_ORDER")
	assert.Equal(t, "PCI_BUS_ID", order)
	assert.Equal(t, On(1, 0), i.GPUUUIDs)
}

func TestAUsersOwnCUDAVisibleDevicesDoesNotWin(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	spec := Spec("a", On(1))
	spec["env_vars"] = map[string]string{"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
	n.Create("a", spec)
	i := n.Await("a", "awake")
	visible, _ := variable(t, i.PID, "CUDA_VISIBLE_DEVICES")
	assert.Equal(t, "1", visible)
	order, _ := variable(t, i.PID, "CUDA_DEVICE_ORDER")
	assert.Equal(t, "PCI_BUS_ID", order)
	log := string(n.Call("GET", instances+"/a/log", nil).Body)
	assert.Contains(t, log, "CUDA_VISIBLE_DEVICES of env_vars is overridden", "it is said in the log")
}

func TestListsCarryTheirRevisionWithAndWithoutDetail(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	list := n.list()
	assert.Equal(t, []launcherapi.Instance{}, list.Instances, "an empty list is [], not null")
	n.Awake("a", On(0))
	n.Create("b", Spec("b", On(1), "--sim-crash-at-load", "exit:3"))
	n.Await("b", "failed")
	n.Eventually("b has given its port back", func() bool { return n.Get("b").Port == 0 }) // which is told as a change
	b := n.Get("b")

	list = n.list()
	assert.Equal(t, 2, list.TotalInstances)
	assert.Equal(t, 1, list.RunningInstances)
	require.Len(t, list.Instances, 2)
	assert.Equal(t, n.Get("a"), list.Instances[0])
	assert.Equal(t, n.Get("b"), list.Instances[1])
	assert.GreaterOrEqual(t, list.Revision, b.Revision)

	short := n.Call("GET", instances+"?detail=false", nil)
	assert.JSONEq(t, fmt.Sprintf(`{"revision":%d,"instance_ids":["a","b"],"count":2}`, list.Revision), string(short.Body))
	for _, spelling := range []string{"False", "0"} {
		assert.JSONEq(t, string(short.Body), string(n.Call("GET", instances+"?detail="+spelling, nil).Body))
	}
	var again launcherapi.InstanceList
	n.Call("GET", instances+"?detail=True", nil).Into(t, &again)
	assert.Equal(t, list, again)

	n.Delete("b")
	assert.Greater(t, n.list().Revision, list.Revision, "a delete is a change")
}

func TestWhatIsNotThereIsA404ThatNamesIt(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, test := range []struct{ method, path string }{
		{"GET", "/nobody"}, {"DELETE", "/nobody"}, {"GET", "/nobody/log"}, {"POST", "/nobody/sleep"}, {"POST", "/nobody/wake"},
	} {
		p := n.Call(test.method, instances+test.path, nil).Problem(t)
		assert.Equal(t, 404, p.Status, "%s %s", test.method, test.path)
		assert.Equal(t, launcherapi.CodeNotFound, p.Code)
		assert.Equal(t, "Instance nobody not found", p.Detail)
		assert.Equal(t, "nobody", p.InstanceID)
	}
	p := n.Call("POST", "/v2/vllm/swap", map[string]any{"in": map[string]any{"instance_id": "nobody"}}).Problem(t)
	assert.Equal(t, 404, p.Status)
	for _, path := range []string{"/v2", "/v2/vllm/instance", "/v2/vllm/instances/", "/v2/vllm/instances/a/logs", "/v1/models", "//health"} {
		assert.Equal(t, 404, n.Call("GET", path, nil).Problem(t).Status, path)
	}
}

func TestADeletedInstanceIsGoneWithItsWholeTree(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Create("a", Spec("a", On(0, 1), "-tp", "2"))
	i := n.Await("a", "awake")
	require.Greater(t, len(engines(n.SimFS)), 2, "an API server, a core and its workers")
	gone := n.Delete("a")
	assert.Equal(t, "a", gone.InstanceID)
	assert.Equal(t, launcherapi.StatusStopped, gone.Status)
	assert.Equal(t, "stopped", gone.State)
	n.empty()
	for _, method := range []string{"GET", "DELETE"} {
		assert.Equal(t, 404, n.Call(method, instances+"/a", nil).Problem(t).Status)
	}
	_, err := tryCall(t.Context(), "GET", publicURL(i, "/health"), nil)
	require.Error(t, err, "nobody listens at its port")
	assert.Equal(t, i.Port, n.Create("a", Spec("a", On(0), "--port", fmt.Sprint(i.Port))).Port, "id, port and GPUs are free again")
}

func TestAllAreDeletedInParallel(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--stop-grace", "2s")
	for k := range 4 {
		n.Create(fmt.Sprint("i", k), Spec("m", nil, "--sim-ignore-term", "true", "--gpu-memory-utilization", "0.2"))
	}
	for k := range 4 {
		n.Await(fmt.Sprint("i", k), "awake")
	}
	events, cancel := n.Watch(fmt.Sprintf("?since=%d", n.list().Revision))
	defer cancel()
	a := n.Call("DELETE", instances, nil)
	require.Equal(t, 200, a.Status, "%s", a.Body)
	var stopped launcherapi.StoppedList
	a.Into(t, &stopped)
	assert.Equal(t, launcherapi.AllStopped, stopped.Status)
	assert.Equal(t, 4, stopped.TotalStopped)
	assert.Len(t, stopped.StoppedInstances, 4)
	for range 4 { // none waits for the two seconds that another takes to be killed
		e := next(t, events)
		var i launcherapi.Instance
		require.NoError(t, json.Unmarshal(e.Object, &i))
		assert.Equal(t, "UPDATED stopping", string(e.Type)+" "+i.State)
	}
	n.empty()
	none := n.Call("DELETE", instances, nil)
	assert.JSONEq(t, `{"status":"all_stopped","stopped_instances":[],"total_stopped":0}`, string(none.Body))
}

func TestHEADAndOPTIONSBehave(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", nil)
	for _, path := range []string{"/", "/health", "/readyz", "/metrics", "/openapi.json", "/docs", "/v2/gpus", instances, instances + "/a", instances + "/a/log"} {
		get, head := n.Call("GET", path, nil), n.Call("HEAD", path, nil)
		assert.Equal(t, get.Status, head.Status, path)
		assert.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"), path)
		assert.Empty(t, head.Body, path)
	}
	assert.Equal(t, 404, n.Call("HEAD", instances+"/nobody", nil).Status)
	head := n.Call("HEAD", instances+"/watch", nil)
	assert.Equal(t, 200, head.Status, "and it ends")
	for path, methods := range map[string]string{
		instances:            "GET, POST, DELETE, HEAD, OPTIONS",
		instances + "/a":     "GET, PUT, DELETE, HEAD, OPTIONS",
		instances + "/watch": "GET, PUT, DELETE, HEAD, OPTIONS",
		"/v2/vllm/swap":      "POST, DELETE, OPTIONS",
		"/health":            "GET, HEAD, OPTIONS",
	} {
		options := n.Call("OPTIONS", path, nil)
		assert.Equal(t, http.StatusNoContent, options.Status, path)
		if path != instances+"/watch" { // PUT and DELETE there are those of an instance of that name
			assert.Equal(t, methods, options.Header.Get("Allow"), path)
		}
		wrong := n.Call("PATCH", path, nil)
		assert.Equal(t, http.StatusMethodNotAllowed, wrong.Problem(t).Status, path)
		assert.Equal(t, options.Header.Get("Allow"), wrong.Header.Get("Allow"))
	}
	assert.Equal(t, 404, n.Call("OPTIONS", "/nothing", nil).Problem(t).Status)
}
