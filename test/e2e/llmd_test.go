package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The API that clients of the llm-d community's launcher know: a client with
// the fields and the rules of theirs, and the paths, names and status codes
// that their tests look at.

// llmdConfig is the body of a create call as their client sends it.
type llmdConfig struct {
	Options     string            `json:"options"`
	GPUUUIDs    []string          `json:"gpu_uuids,omitempty"`
	EnvVars     map[string]string `json:"env_vars,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// llmdState is an instance as their client reads it.
type llmdState struct {
	InstanceID string `json:"instance_id"`
	Status     string `json:"status"`
	llmdConfig
}

// llmdList is a list as their client reads it.
type llmdList struct {
	TotalInstances   int         `json:"total_instances"`
	RunningInstances int         `json:"running_instances"`
	Instances        []llmdState `json:"instances"`
}

// llmdClient takes every status below 300 for success, as theirs does.
type llmdClient struct {
	t    *testing.T
	base string
}

func (c llmdClient) do(method, path string, body, out any) int {
	c.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(c.t, err)
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, bytes.NewReader(data))
	require.NoError(c.t, err)
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	if resp.StatusCode < 300 && out != nil {
		require.NoError(c.t, json.NewDecoder(resp.Body).Decode(out))
	}
	return resp.StatusCode
}

func TestAClientOfTheLLMDLauncherFindsItsAPI(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	c := llmdClient{t, n.URL}

	var health map[string]string
	assert.Equal(t, 200, c.do("GET", "/health", nil, &health))
	assert.Equal(t, map[string]string{"status": "OK"}, health)
	var index struct {
		Name, Version string
		Endpoints     map[string]string
	}
	assert.Equal(t, 200, c.do("GET", "/", nil, &index))
	assert.Equal(t, "Multi-Instance vLLM Management API", index.Name)
	assert.Equal(t, "2.0", index.Version)
	for name, endpoint := range map[string]string{
		"index": "GET /", "health": "GET /health", "create_instance": "POST /v2/vllm/instances",
		"create_named_instance": "PUT /v2/vllm/instances/{instance_id}", "delete_instance": "DELETE /v2/vllm/instances/{instance_id}",
		"delete_all_instances": "DELETE /v2/vllm/instances", "get_instance_status": "GET /v2/vllm/instances/{instance_id}",
		"get_all_instances": "GET /v2/vllm/instances", "get_instance_logs": "GET /v2/vllm/instances/{instance_id}/log",
		"watch_instances": "GET /v2/vllm/instances/watch",
	} {
		assert.Equal(t, endpoint, index.Endpoints[name], name)
	}

	config := llmdConfig{
		Options: "--model test --served-model-name test --gpu-memory-utilization 0.4", GPUUUIDs: On(0),
		EnvVars: map[string]string{"TESTVAR": "val"}, Annotations: map[string]string{"isc-name": "isc", "inference-port": "8005"},
	}
	var made llmdState
	assert.Equal(t, 201, c.do("PUT", instances+"/custom-id", config, &made))
	assert.Equal(t, llmdState{"custom-id", "running", config}, made)
	assert.Equal(t, 409, c.do("PUT", instances+"/custom-id", config, nil))
	assert.Equal(t, 201, c.do("POST", instances, llmdConfig{Options: "--model test --port 0 --gpu-memory-utilization 0.4"}, &made))
	assert.NotEmpty(t, made.InstanceID)
	other := made.InstanceID

	var got llmdState
	assert.Equal(t, 200, c.do("GET", instances+"/custom-id", nil, &got))
	assert.Equal(t, llmdState{"custom-id", "running", config}, got)
	assert.Equal(t, 404, c.do("GET", instances+"/nonexistent-id", nil, nil))
	assert.Equal(t, 404, c.do("DELETE", instances+"/nonexistent-id", nil, nil))
	assert.Equal(t, 404, c.do("GET", instances+"/nonexistent-id/log", nil, nil))

	var list llmdList
	assert.Equal(t, 200, c.do("GET", instances, nil, &list))
	assert.Equal(t, []int{2, 2}, []int{list.TotalInstances, list.RunningInstances})
	assert.Equal(t, got, list.Instances[0])
	var ids struct {
		InstanceIDs []string `json:"instance_ids"`
		Count       int
		Revision    *int
	}
	assert.Equal(t, 200, c.do("GET", instances+"?detail=False", nil, &ids))
	assert.Equal(t, []string{"custom-id", other}, ids.InstanceIDs)
	assert.Equal(t, 2, ids.Count)
	assert.NotNil(t, ids.Revision)

	var gone llmdState
	assert.Equal(t, 200, c.do("DELETE", instances+"/custom-id", nil, &gone))
	assert.Equal(t, llmdState{"custom-id", "stopped", config}, gone)
	var all map[string]any
	assert.Equal(t, 200, c.do("DELETE", instances, nil, &all))
	assert.Equal(t, "all_stopped", all["status"])
	assert.EqualValues(t, 1, all["total_stopped"])
	assert.Len(t, all["stopped_instances"], 1)
}

func TestAWatcherOfTheLLMDLauncherIsToldOfCreationEndAndDeletion(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	resp, err := http.Get(n.URL + instances + "/watch")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	lines := bufio.NewScanner(resp.Body)
	n.Create("a", Spec("a", On(0), "--sim-crash-at-load", "exit:3"))
	n.Await("a", "failed")
	n.Delete("a")
	var told []string
	for lines.Scan() {
		var e struct {
			Type   string
			Object struct {
				llmdState
				Revision *int
				ExitCode *int `json:"exit_code"`
			}
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		assert.NotNil(t, e.Object.Revision)
		if e.Type == "UPDATED" { // theirs has none; a client that knows three types leaves it aside
			continue
		}
		if e.Type == "STOPPED" {
			require.NotNil(t, e.Object.ExitCode)
			assert.Equal(t, 3, *e.Object.ExitCode)
		}
		told = append(told, fmt.Sprintf("%s %s %s", e.Type, e.Object.InstanceID, e.Object.Status))
		if e.Type == "DELETED" {
			break
		}
	}
	assert.Equal(t, []string{"CREATED a running", "STOPPED a stopped", "DELETED a stopped"}, told)
}

func TestAControllerOfLLMDPutsAnInstanceToSleepAtTheEnginesPort(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	i := n.Awake("a", On(0))
	engine := llmdClient{t, publicURL(i, "")}
	asleep := func() bool {
		var answer struct {
			IsSleeping *bool `json:"is_sleeping"`
		}
		assert.Equal(t, 200, engine.do("GET", "/is_sleeping", nil, &answer))
		require.NotNil(t, answer.IsSleeping)
		return *answer.IsSleeping
	}
	assert.False(t, asleep())
	assert.Equal(t, 200, engine.do("POST", "/sleep?level=1", nil, nil))
	assert.True(t, asleep())
	assert.Equal(t, "sleeping", n.Get("a").State, "by the launcher's own verb")
	assert.Equal(t, 200, engine.do("POST", "/wake_up", nil, nil))
	assert.False(t, asleep())
	assert.Equal(t, "awake", n.Get("a").State)
	n.Ask(n.Get("a"), "hello")
}

func TestWithoutTheCompatibilityFlagAnInstancesPortHasNoVerbs(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	i := n.Awake("a", On(0))
	for path, method := range map[string]string{"/sleep": "POST", "/wake_up": "POST", "/is_sleeping": "GET"} {
		assert.Equal(t, 404, call(t, method, publicURL(i, path), nil).Status, path)
	}
}
