package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestTheIndexNamesEveryOperation(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodGet, "/", "")
	require.Equal(t, http.StatusOK, got.status)
	index := decode[launcherapi.Service](t, got.body)
	assert.Equal(t, "Multi-Instance vLLM Management API", index.Name)
	assert.Equal(t, "2.0", index.Version)
	for _, op := range r.document.Operations() {
		assert.Contains(t, index.Endpoints, nameOf(index.Endpoints, op), op)
	}
	for name, endpoint := range map[string]string{ // as the llm-d launcher has them
		"index": "GET /", "health": "GET /health",
		"create_instance":       "POST /v2/vllm/instances",
		"create_named_instance": "PUT /v2/vllm/instances/{instance_id}",
		"delete_instance":       "DELETE /v2/vllm/instances/{instance_id}",
		"delete_all_instances":  "DELETE /v2/vllm/instances",
		"get_instance_status":   "GET /v2/vllm/instances/{instance_id}",
		"get_all_instances":     "GET /v2/vllm/instances",
		"get_instance_logs":     "GET /v2/vllm/instances/{instance_id}/log",
		"watch_instances":       "GET /v2/vllm/instances/watch",
	} {
		assert.Equal(t, endpoint, index.Endpoints[name])
	}
}

func nameOf(endpoints map[string]string, endpoint string) string {
	for name, e := range endpoints {
		if e == endpoint {
			return name
		}
	}
	return ""
}

func TestHealthAndReadinessAreTold(t *testing.T) {
	ready := launcherapi.Ready{Status: launcherapi.ReadyStatus}
	r := newRig(t, func(o *api.Options) { o.Ready = func() launcherapi.Ready { return ready } })
	assert.JSONEq(t, `{"status":"OK"}`, r.do(t, http.MethodGet, "/health", "").body)
	got := r.do(t, http.MethodGet, "/readyz", "")
	assert.Equal(t, http.StatusOK, got.status)
	assert.JSONEq(t, `{"status":"ready"}`, got.body)
	ready.Status = launcherapi.ClosingStatus
	got = r.do(t, http.MethodGet, "/readyz", "")
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.JSONEq(t, `{"status":"closing"}`, got.body)
}

func TestMetricsComeFromTheirHandler(t *testing.T) {
	got := newRig(t).do(t, http.MethodGet, "/metrics", "")
	assert.Equal(t, "up 1\n", got.body)
}

func TestTheDocumentInSpecIsTheOneThatTheTypesMake(t *testing.T) {
	want, err := api.Document()
	require.NoError(t, err)
	got, err := os.ReadFile("../../../../spec/launcherapi/openapi.yaml")
	require.NoError(t, err)
	header, document, _ := bytes.Cut(got, []byte("\n"))
	assert.True(t, bytes.HasPrefix(header, []byte("# ")))
	if !bytes.Equal(want, document) {
		t.Error("spec/launcherapi/openapi.yaml is not what the types say: run go run ./launcher/internal/edges/api/genopenapi spec/launcherapi/openapi.yaml")
	}
}

func TestTheDocumentIsServedInBothForms(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodGet, "/openapi.json", "")
	assert.Equal(t, "application/openapi+json", got.header.Get("Content-Type"))
	var fromJSON, fromYAML any
	require.NoError(t, json.Unmarshal([]byte(got.body), &fromJSON))
	converted, err := yaml.YAMLToJSON([]byte(r.do(t, http.MethodGet, "/openapi.yaml", "").body))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(converted, &fromYAML))
	assert.Equal(t, fromJSON, fromYAML)
}

func TestThePageOfDocumentationNeedsNothingFromElsewhere(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodGet, "/docs", "")
	require.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
	assert.NotRegexp(t, `https?://|src=|@import|url\(`, got.body)
	assert.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, op := range r.document.Operations() {
		_, path, _ := strings.Cut(op, " ")
		assert.Contains(t, got.body, path)
	}
	for _, link := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(got.body, -1) {
		assert.Contains(t, got.body, `id="`+link[1]+`"`, "a link that leads nowhere")
	}
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "hello")
	for _, path := range []string{
		"/", "/health", "/readyz", "/metrics", "/openapi.json", "/openapi.yaml", "/docs", "/v2/gpus", instancesPath,
		instancesPath + "/a", instancesPath + "/a/log", instancesPath + "/a/log?follow=true", instancesPath + "/watch", instancesPath + "/none",
	} {
		head := r.do(t, http.MethodHead, path, "")
		assert.Empty(t, head.body, path)
		if strings.Contains(path, "watch") || strings.Contains(path, "follow") {
			assert.Equal(t, http.StatusOK, head.status, path)
			continue // a GET would not end
		}
		get := r.do(t, http.MethodGet, path, "")
		assert.Equal(t, get.status, head.status, path)
		assert.Equal(t, get.header.Get("Content-Type"), head.header.Get("Content-Type"), path)
	}
}

func TestOptionsTellsWhatAPathTakes(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/":                        "GET, HEAD, OPTIONS",
		instancesPath:              "GET, POST, DELETE, HEAD, OPTIONS",
		instancesPath + "/a":       "GET, PUT, DELETE, HEAD, OPTIONS",
		instancesPath + "/a/log":   "GET, HEAD, OPTIONS",
		instancesPath + "/a/sleep": "POST, OPTIONS",
		swapPath:                   "POST, DELETE, OPTIONS",
	} {
		got := r.do(t, http.MethodOptions, path, "")
		assert.Equal(t, http.StatusNoContent, got.status, path)
		assert.Equal(t, want, got.header.Get("Allow"), path)
		got = r.do(t, http.MethodPatch, path, "")
		assert.Equal(t, http.StatusMethodNotAllowed, got.status, path)
		assert.Equal(t, want, got.header.Get("Allow"), path)
		got.problem(t)
	}
	assert.Empty(t, r.instances.Record())
}

func TestWhatDoesNotExistIsAProblemDocument(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/nothing", "/v2", "/v2/vllm/instances/", "/v2/vllm/instances/a/b", "//health", "/v2/vllm/../../health", "/" + strings.Repeat("x", 10_000)} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, "BREW"} {
			got := r.do(t, method, path, "")
			assert.Equal(t, http.StatusNotFound, got.status, path)
			assert.Equal(t, launcherapi.CodeNotFound, got.problem(t).Code)
			assert.Less(t, len(got.body), 1000)
		}
	}
}

func TestAPanicIsA500AndTheServerGoesOn(t *testing.T) {
	r := newRig(t, quiet)
	r.instances.Panic(true)
	got := r.do(t, http.MethodGet, instancesPath+"/a", "")
	assert.Equal(t, http.StatusInternalServerError, got.status)
	assert.NotContains(t, got.problem(t).Detail, "on purpose")
	r.instances.Panic(false)
	r.create(t, "a")
}

func TestEveryAnswerIsObservedByItsRoute(t *testing.T) {
	type observed struct {
		route, method string
		status        int
	}
	seen := make(chan observed, 10)
	r := newRig(t, func(o *api.Options) {
		o.Observe = func(route, method string, status int, took time.Duration) {
			assert.Positive(t, took)
			seen <- observed{route, method, status}
		}
	})
	for _, test := range []struct {
		method, path string
		want         observed
	}{
		{http.MethodPut, instancesPath + "/a", observed{"/v2/vllm/instances/{instance_id}", "PUT", 400}},
		{http.MethodGet, instancesPath + "/a", observed{"/v2/vllm/instances/{instance_id}", "GET", 404}},
		{http.MethodGet, "/health", observed{"/health", "GET", 200}},
		{http.MethodGet, "/nothing", observed{"unmatched", "GET", 404}},
		{"BREW", "/health", observed{"unmatched", "other", 405}},
		{"BREW", "/nothing", observed{"unmatched", "other", 404}},
	} {
		r.do(t, test.method, test.path, "")
		assert.Equal(t, test.want, <-seen)
	}
}

func TestARequestKeepsItsID(t *testing.T) {
	r := newRig(t)
	assert.Equal(t, "mine", r.do(t, http.MethodGet, "/health", "", "X-Request-Id", "mine").header.Get("X-Request-Id"))
	assert.NotEmpty(t, r.do(t, http.MethodGet, "/health", "").header.Get("X-Request-Id"))
}

func TestAHandlerCanBeUsedWithoutASocket(t *testing.T) {
	r := newRig(t)
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, instancesPath, strings.NewReader(`{"options":"x"}`)))
	assert.Equal(t, http.StatusCreated, w.Code)
}
