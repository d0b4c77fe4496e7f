package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// A row of the section "API" of spec/rows.md. That every answer
// is as the document says is checked by the node's client, in every test.

func TestEveryOperationOfTheDocumentIsThereAndAnswersAsItSays(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	n := NewStoppedNode(t, "--model-store", filepath.Join(t.TempDir(), "models"), "--front-door", freeAddress(t))
	n.env = append(n.env, "HF_ENDPOINT="+hub.URL)
	n.Start()
	expect := func(status int, method, path string, body any, headers ...string) Answer {
		t.Helper()
		a := n.Call(method, path, body, headers...)
		require.Equal(t, status, a.Status, "%s %s: %.500s", method, path, a.Body)
		return a
	}
	expect(200, "GET", "/", nil)
	require.NotEmpty(t, n.Document.Operations())
	for _, path := range []string{"/health", "/readyz", "/metrics", "/v2/gpus", "/v2/vllm/preloaders", instances} {
		expect(200, "GET", path, nil)
	}
	made := expect(201, "POST", instances, Spec("m", On(1))).Instance(t)
	expect(201, "PUT", instances+"/a", Spec("a", On(0)))
	n.Await("a", "awake")
	n.Await(made.InstanceID, "awake")
	expect(200, "GET", instances+"/a", nil)
	expect(200, "GET", instances+"?detail=false", nil)
	expect(200, "GET", instances+"/a/log", nil)
	expect(206, "GET", instances+"/a/log", nil, "Range", "bytes=0-9")
	expect(200, "POST", instances+"/a/sleep", map[string]any{"level": 2, "drain_timeout": "1m30s"})
	expect(202, "POST", instances+"/a/wake", map[string]any{"wait": false})
	n.Await("a", "awake")
	expect(202, "POST", instances+"/a/sleep", map[string]any{"wait": false, "timeout": 30})
	n.Await("a", "sleeping")
	expect(200, "POST", instances+"/a/wake", nil)
	expect(200, "POST", instances+"/a/sleep", `{"level":1.0,"drain_timeout":null,"timeout":3e1,"wait":null}`)
	expect(200, "POST", instances+"/a/wake", `{"wait":null,"timeout":null}`)
	expect(422, "POST", instances+"/a/sleep", `{"level":1.5}`)
	expect(422, "PUT", instances+"/no%20name", Spec("m", On(0)))
	expect(200, "GET", "/v2/gpus", nil)
	events, leave := n.Watch("?heartbeat=100ms")
	defer leave()
	for e := range events { // the CREATEDs are held against the document, and a heartbeat
		if e.Type == launcherapi.EventHeartbeat {
			break
		}
	}
	expect(200, "POST", "/v2/vllm/swap", toNew("b", On(0)))
	expect(200, "POST", "/v2/vllm/swap", to("a"), "Accept", "application/x-ndjson")
	expect(200, "POST", "/v2/vllm/swap", to("a"), "Accept", "text/event-stream")
	expect(502, "POST", "/v2/vllm/swap", toNew("c", On(0), "--sim-crash-at-load", "exit:3"))
	expect(409, "POST", "/v2/vllm/swap", map[string]any{"in": map[string]any{"instance_id": "b"}, "gpu_uuids": On(1)})
	expect(200, "DELETE", instances+"/a", nil)
	first, second := n.waiting("slow")
	expect(404, "DELETE", "/v2/vllm/swap", nil, "Idempotency-Key", "nobody")
	var swaps launcherapi.SwapList
	expect(200, "GET", "/v2/swaps", nil).Into(t, &swaps)
	over := "/v2/swaps/" + swaps.Swaps[0].SwapID
	expect(200, "GET", over, nil)
	expect(200, "GET", over+"?follow=true", nil)
	expect(200, "GET", over+"?follow=true", nil, "Accept", "text/event-stream")
	expect(409, "DELETE", over, nil)
	expect(404, "GET", "/v2/swaps/none", nil)
	expect(409, "POST", over+"/commit", nil)
	expect(409, "POST", over+"/undo", nil)
	for _, word := range []string{"undo", "commit"} {
		answered := n.inHalves(toNew("held", On(1)))
		held := n.inPhase(launcherapi.PhaseGo)
		if word == "commit" {
			expect(200, "POST", held+"/go", nil)
			n.inPhase(launcherapi.PhaseCommit)
		}
		expect(200, "POST", held+"/"+word, nil)
		<-answered
	}
	expect(200, "DELETE", "/v2/vllm/swap", nil, "Idempotency-Key", "waits")
	<-second
	third := n.waits("waits too")
	expect(200, "GET", "/v2/swaps", nil).Into(t, &swaps)
	expect(200, "DELETE", "/v2/swaps/"+swaps.Swaps[len(swaps.Swaps)-1].SwapID, nil)
	<-third
	n.Delete("slow")
	<-first
	expect(200, "DELETE", instances, nil)
	expect(200, "GET", "/v2/front-door", nil)
	expect(200, "PUT", "/v2/front-door/profile", map[string]any{"profile": ""})
	expect(422, "PUT", "/v2/front-door/profile", map[string]any{"profile": "none"})
	expect(200, "PUT", "/v2/port-leases/p", map[string]any{"count": 2})
	expect(409, "PUT", "/v2/port-leases/p", map[string]any{"count": 3})
	expect(422, "PUT", "/v2/port-leases/p", map[string]any{"count": 9})
	expect(200, "DELETE", "/v2/port-leases/p", nil)
	expect(404, "DELETE", "/v2/port-leases/p", nil)
	m := n.pull("hf://org/tiny")
	expect(200, "PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny"})
	expect(200, "GET", "/v2/models", nil)
	expect(200, "GET", "/v2/models/"+m.ID, nil)
	expect(404, "GET", "/v2/models/none", nil)
	expect(200, "POST", "/v2/models/"+m.ID+"/warm", nil)
	expect(404, "POST", "/v2/models/none/warm", nil)
	expect(422, "PUT", "/v2/models", map[string]any{"uri": "ftp://host/x"})
	models, away := n.WatchAt("/v2/models/watch?heartbeat=100ms")
	defer away()
	for e := range models { // held against the document too
		if e.Type == launcherapi.EventHeartbeat {
			break
		}
	}
	expect(200, "DELETE", "/v2/models/"+m.ID, nil)
	own := "/v2/compile-caches/" + n.compiled().Key
	carried := expect(200, "GET", own, nil)
	expect(200, "PUT", own, carried.Body)
	expect(422, "PUT", own, "no tar stream")
	expect(404, "GET", "/v2/compile-caches/none", nil)
	expect(409, "PUT", "/v2/compile-caches/"+strings.Repeat("0", 32), carried.Body)
	expect(200, "DELETE", own, nil)
	assert.Empty(t, n.Document.Missing())
}

func TestTheIndexNamesEveryOperationOfTheDocument(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	var service launcherapi.Service
	n.Call("GET", "/", nil).Into(t, &service)
	var listed []string
	for _, operation := range service.Endpoints {
		listed = append(listed, operation)
	}
	assert.Subset(t, listed, n.Document.Operations())
}

func TestTheDocumentationWorksOffline(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	page := n.Call("GET", "/docs", nil)
	require.Equal(t, 200, page.Status)
	assert.Equal(t, "text/html; charset=utf-8", page.Header.Get("Content-Type"))
	assert.NotRegexp(t, regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:)?//`), string(page.Body), "it loads nothing from elsewhere")
	assert.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, operation := range n.Document.Operations() {
		var method, path string
		_, err := fmt.Sscan(operation, &method, &path)
		require.NoError(t, err)
		assert.Contains(t, string(page.Body), path)
	}
	assert.Equal(t, 200, n.Call("GET", "/openapi.yaml", nil).Status)
}
