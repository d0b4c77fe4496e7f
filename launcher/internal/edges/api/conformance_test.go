package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/conformance/openapi"
)

// The rig's client holds every answer against the document; here each operation
// has its turn.
func TestEveryOperationOfTheDocumentAnswersAsItSays(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodGet, "/openapi.json", "")
	fresh, err := openapi.Read([]byte(got.body))
	require.NoError(t, err)
	r.hold(t, fresh)
	r.swaps.Next(apitest.Over(result, nil), nil)
	for _, call := range []struct{ method, path, body string }{
		{http.MethodGet, "/", ""},
		{http.MethodGet, "/health", ""},
		{http.MethodGet, "/readyz", ""},
		{http.MethodGet, "/metrics", ""},
		{http.MethodPost, instancesPath, `{"args":["--model","m"],"env_vars":{"A":"b","C":{"from_file":"/d"}}}`},
		{http.MethodPut, instancesPath + "/a", `{"options":"--model m","annotations":{"x":"y"}}`},
		{http.MethodGet, instancesPath, ""},
		{http.MethodGet, instancesPath + "?detail=false", ""},
		{http.MethodGet, instancesPath + "/a", ""},
		{http.MethodPost, instancesPath + "/a/sleep", `{"level":1}`},
		{http.MethodPost, instancesPath + "/a/wake", `{"wait":false}`},
		{http.MethodGet, "/v2/gpus", ""},
		{http.MethodGet, "/v2/vllm/preloaders", ""},
		{http.MethodPost, swapPath, `{"in":{"instance_id":"a"}}`},
		{http.MethodDelete, swapPath, ""},
		{http.MethodGet, "/v2/swaps", ""},
		{http.MethodGet, "/v2/swaps/s", ""},
		{http.MethodGet, "/v2/swaps/s?follow=true", ""},
		{http.MethodDelete, "/v2/swaps/s", ""},
		{http.MethodPost, "/v2/swaps/s/go", ""},
		{http.MethodPost, "/v2/swaps/s/commit", ""},
		{http.MethodPost, "/v2/swaps/s/undo", ""},
		{http.MethodPut, "/v2/port-leases/a", `{"count":2}`},
		{http.MethodDelete, "/v2/port-leases/a", ""},
		{http.MethodGet, "/v2/front-door", ""},
		{http.MethodPut, "/v2/front-door/profile", `{"profile":"p"}`},
		{http.MethodPut, "/v2/models", `{"uri":"m"}`},
		{http.MethodGet, "/v2/models", ""},
		{http.MethodGet, "/v2/models/m", ""},
		{http.MethodPost, "/v2/models/m/warm", ""},
	} {
		got := r.do(t, call.method, call.path, call.body, "Idempotency-Key", "k")
		assert.Less(t, got.status, 300, "%s %s: %s", call.method, call.path, got.body)
	}
	r.writeLog(t, "a", "hello\n")
	r.do(t, http.MethodGet, logPath, "")
	r.do(t, http.MethodGet, logPath, "", "Range", "bytes=1-2")
	w := r.watch(t, "?heartbeat=100ms")
	for w.next(t).Type != launcherapi.EventHeartbeat {
	}
	models := r.follow(t, "/v2/models/watch?heartbeat=100ms")
	for models.next(t).Type != launcherapi.EventHeartbeat {
	}
	r.do(t, http.MethodDelete, "/v2/models/m", "")
	var caches launcherapi.CompileCacheList
	require.NoError(t, json.Unmarshal([]byte(r.do(t, http.MethodGet, "/v2/compile-caches", "").body), &caches))
	cache := "/v2/compile-caches/" + caches.Caches[0].Key
	carried := r.do(t, http.MethodGet, cache, "")
	assert.Equal(t, http.StatusOK, r.do(t, http.MethodPut, cache, carried.body).status)
	r.do(t, http.MethodDelete, cache, "")
	r.do(t, http.MethodDelete, instancesPath+"/a", "")
	r.do(t, http.MethodDelete, instancesPath, "")
	assert.Empty(t, r.document.Missing())
}
