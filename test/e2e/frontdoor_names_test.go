package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// offer is a node with a front door and the models of a configuration file.
func offer(t *testing.T, models string, flags ...string) (n *Node, url string) {
	t.Helper()
	n, url = offerStopped(t, models, flags...)
	n.Start()
	return n, url
}

func offerStopped(t *testing.T, models string, flags ...string) (n *Node, url string) {
	t.Helper()
	address := freeAddress(t)
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, []byte(models), 0o600))
	n = NewStoppedNode(t, append([]string{"--config", file, "--front-door", address}, flags...)...)
	n.config = file
	return n, "http://" + address
}

// ask asks the front door for a completion of a model.
func ask(t *testing.T, url, model string, headers ...string) Answer {
	t.Helper()
	return call(t, "POST", url+"/v1/completions", question(model), headers...)
}

// refusal reads an error of the OpenAI API.
func refusal(t *testing.T, a Answer) (e struct{ Message, Type, Param, Code string }) {
	t.Helper()
	var v struct{ Error *json.RawMessage }
	a.Into(t, &v)
	require.NotNil(t, v.Error, "%s", a.Body)
	require.NoError(t, json.Unmarshal(*v.Error, &e), "%s", a.Body)
	assert.NotEmpty(t, e.Message)
	return e
}

// answeredBy returns the model that an answer names.
func answeredBy(t *testing.T, a Answer) string {
	t.Helper()
	require.Equal(t, 200, a.Status, "%s", a.Body)
	var v struct{ Model string }
	a.Into(t, &v)
	return v.Model
}

const twoModels = `models:
- name: org/alpha
  aliases: [alpha]
  options: org/alpha --served-model-name org/alpha alpha
  gpus: 1
  params: {variants: {alpha-cold: {set: {temperature: 0}}}}
- name: beta
  options: beta --served-model-name beta
  gpus: 1
selectors:
- {name: any, strategy: nearest, models: [alpha, beta]}
`

// Row 1: the served name, an alias, a variant and a selector all lead to the model.
func TestFrontDoorServesModelByAllItsNames(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	for _, name := range []string{"org/alpha", "alpha", "alpha-cold", "any"} {
		assert.Contains(t, []string{"org/alpha", "alpha"}, answeredBy(t, ask(t, url, name)), name)
	}
	var all launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(t, &all)
	require.Len(t, all.Instances, 1, "all names are one instance")
	assert.Regexp(t, `^m-org-alpha\.[0-9a-f]{8}$`, all.Instances[0].InstanceID)
}

// Row 2: an unknown model is 404, and the nearest name and the others are named.
func TestFrontDoorNamesTheNearestModel(t *testing.T) {
	t.Parallel()
	_, url := offer(t, twoModels)
	got := ask(t, url, "alpa")
	assert.Equal(t, 404, got.Status)
	e := refusal(t, got)
	assert.Equal(t, "model_not_found", e.Code)
	assert.Equal(t, "model", e.Param)
	assert.Contains(t, e.Message, "did you mean alpha")
	assert.Contains(t, e.Message, "org/alpha, alpha, alpha-cold, beta, any")
	assert.Equal(t, 404, call(t, "GET", url+"/v1/models/alpa", nil).Status)
	assert.Equal(t, 200, call(t, "GET", url+"/v1/models/org/alpha", nil).Status)
}

// Rows 3 and 4: where the model stands in a body, bodies without a model, and bodies that are no
// JSON. None of the wrong ones touches a GPU.
func TestFrontDoorReadsModelOfAnyBody(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	long := strings.Repeat("x", 8<<20)
	bad := map[string]struct {
		body, kind string
		status     int
		code       string
	}{
		"twice":            {`{"model":"alpha","prompt":"a","model":"beta"}`, "application/json", 400, "model_given_twice"},
		"of a wrong type":  {`{"model":7,"prompt":"a"}`, "application/json", 400, "model_not_a_string"},
		"missing":          {`{"prompt":"a"}`, "application/json", 400, "model_missing"},
		"empty":            {`{"model":"","prompt":"a"}`, "application/json", 400, "model_missing"},
		"no JSON":          {`model=alpha`, "application/json", 400, "not_json"},
		"cut off":          {`{"model":"alpha"`, "application/json", 400, "not_json"},
		"no content type":  {`{"model":"alpha"}`, "", 400, "unsupported_content_type"},
		"of another kind":  {`{"model":"alpha"}`, "text/plain", 400, "unsupported_content_type"},
		"too large":        {`{"prompt":"` + strings.Repeat("x", 33<<20) + `","model":"alpha"}`, "application/json", 413, "request_too_large"},
		"no boundary":      {`{"model":"alpha"}`, "multipart/form-data", 400, "not_a_form"},
		"of nested object": {`{"a":{"model":"alpha"}}`, "application/json", 400, "model_missing"},
	}
	for name, c := range bad {
		got := call(t, "POST", url+"/v1/completions", c.body, "Content-Type", c.kind)
		assert.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
		assert.Equal(t, c.code, refusal(t, got).Code, name)
	}
	var all launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(t, &all)
	assert.Empty(t, all.Instances, "a request that is wrong starts no engine")
	for name, body := range map[string]string{
		"early": `{"model":"alpha","max_tokens":1,"prompt":"` + long + `"}`,
		"late":  `{"max_tokens":1,"prompt":"` + long + `","model":"alpha"}`,
	} {
		// The stand-in's context is short: that it says so shows that it had the whole prompt.
		got := call(t, "POST", url+"/v1/completions", body)
		assert.Equal(t, 400, got.Status, "%s: %.200s", name, got.Body)
		assert.Contains(t, string(got.Body), "maximum context length", name)
	}
}

// Row 3: a form of 40 MiB with the model before and after the file.
func TestFrontDoorReadsModelOfLongForm(t *testing.T) {
	t.Parallel()
	_, url := offer(t, twoModels)
	file := bytes.Repeat([]byte("hotseat "), 5<<20)
	for _, last := range []bool{false, true} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		if !last {
			require.NoError(t, form.WriteField("model", "alpha"))
		}
		part, err := form.CreateFormFile("file", "speech.wav")
		require.NoError(t, err)
		_, err = part.Write(file)
		require.NoError(t, err)
		if last {
			require.NoError(t, form.WriteField("model", "alpha"))
		}
		require.NoError(t, form.Close())
		got := call(t, "POST", url+"/v1/audio/transcriptions", body.Bytes(), "Content-Type", form.FormDataContentType())
		assert.Equal(t, 404, got.Status)
		assert.JSONEq(t, `{"detail":"Not Found"}`, string(got.Body), "so says the stand-in, which has no speech")
	}
}

// A client that waits to be asked for its body (Expect: 100-continue) is asked once, by the front door
// alone.
func TestFrontDoorAsksForABodyOnce(t *testing.T) {
	t.Parallel()
	_, url := offer(t, "models:\n"+modelText("a", ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	const body = `{"model":"a","prompt":"x","max_tokens":1}`
	_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", strings.TrimPrefix(url, "http://"), len(body))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	for _, status := range []int{100, 200} {
		got, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		assert.Equal(t, status, got.StatusCode)
		if status == 100 {
			_, err = io.WriteString(conn, body)
			require.NoError(t, err)
		}
		require.NoError(t, got.Body.Close())
	}
}

// Row 5: the list has each name with its state, and what a selector chooses from.
func TestFrontDoorListsModelsWithStates(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	n.Awake("made", On(1))
	require.Equal(t, 200, ask(t, url, "alpha").Status)
	list := call(t, "GET", url+"/v1/models", nil)
	require.Equal(t, 200, list.Status)
	var models struct {
		Data []struct {
			ID, Object, State string
			Models            []string
		}
	}
	list.Into(t, &models)
	found := map[string]string{}
	for _, m := range models.Data {
		assert.Equal(t, "model", m.Object)
		found[m.ID] = m.State + strings.Join(m.Models, "+")
	}
	assert.Equal(t, map[string]string{"org/alpha": "awake", "alpha": "awake", "alpha-cold": "awake", "beta": "stopped", "any": "alpha+beta", "made": "awake"}, found)
}

// Row 6: a path beyond the list is 404 in any spelling, and no engine sees it.
func TestFrontDoorServesListedPathsAlone(t *testing.T) {
	t.Parallel()
	n, url := offer(t, twoModels)
	for _, path := range []string{
		"/sleep", "/wake_up", "/collective_rpc", "/slots", "/v1/load_lora_adapter", "/V1/completions", "/v1//completions", "/v1/./completions",
		"/x/../v1/completions", "/v1/completions/", "/v1%2Fcompletions", "/v1/%63ompletions", "//sleep", "/SLEEP", "/%73leep", "/", "/metrics", "/server_info",
	} {
		got := raw(t, url, "POST", path, `{"model":"alpha","prompt":"a"}`)
		assert.Equal(t, 404, got.StatusCode, path)
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "TRACE"} {
		assert.Equal(t, 404, raw(t, url, method, "/v1/completions", `{"model":"alpha","prompt":"a"}`).StatusCode, method)
	}
	var all launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(t, &all)
	assert.Empty(t, all.Instances)
}

// raw sends a request whose path stays as it is written.
func raw(t *testing.T, url, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, io.NopCloser(strings.NewReader(body)))
	require.NoError(t, err)
	req.URL.Opaque = path
	if strings.HasPrefix(path, "//") { // or else it is taken for a host
		req.URL.Opaque = "//" + req.URL.Host + path
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp
}

// A request's id goes to the engine and comes back; one that is none is replaced.
func TestFrontDoorKeepsRequestID(t *testing.T) {
	t.Parallel()
	_, url := offer(t, twoModels)
	assert.Equal(t, "mine-1", ask(t, url, "alpha", "X-Request-Id", "mine-1").Header.Get("X-Request-Id"))
	assert.Regexp(t, "^req-", ask(t, url, "nobody", "X-Request-Id", "two words").Header.Get("X-Request-Id"))
}

// Headers of a mebibyte are refused, and the others are served meanwhile (row 34).
func TestFrontDoorRefusesLongHeaders(t *testing.T) {
	t.Parallel()
	_, url := offer(t, twoModels)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 1<<20)) // it may be cut
	answer := make([]byte, 12)
	_, err = io.ReadFull(conn, answer)
	if err == nil { // the server may have closed with unread bytes, which resets the connection
		assert.Equal(t, "HTTP/1.1 431", string(answer))
	}
	assert.Equal(t, 200, ask(t, url, "alpha").Status)
}

// A model that the store lacks keeps the launcher from nothing: its requests fail and say why, and
// are answered once it is pulled.
func TestFrontDoorServesBesideAModelThatIsNotPulled(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1<<10))
	f := models(t, hub)
	require.NotEmpty(t, f.pull("hf://org/tiny").ID)
	n, url := offer(t, "models:\n- {name: late, gpus: 1, options: hf://org/late}\n"+modelText("a", ""), "--model-store", f.dir)
	assert.Equal(t, 200, ask(t, url, "a").Status)
	got := ask(t, url, "late")
	assert.Equal(t, 502, got.Status, "%s", got.Body)
	assert.Contains(t, refusal(t, got).Message, "pull it first: launcher pull hf://org/late")
	hub.Put("org/late", tiny(1<<10+1))
	require.NotEmpty(t, f.pull("hf://org/late").ID)
	assert.Equal(t, 200, ask(t, url, "late").Status)
	assert.Equal(t, "cache", n.instances()["m-late"].ModelFrom)
}
