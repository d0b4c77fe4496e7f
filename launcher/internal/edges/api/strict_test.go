package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	instancesPath = "/v2/vllm/instances"
	swapPath      = "/v2/vllm/swap"
)

// keys are the members of an object, all with the same value.
func keys(n int, value string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k` + strconv.Itoa(i) + `":` + value)
	}
	return b.String()
}

func TestABodyThatIsNotAsItShouldBeIsRefusedAndReachesNobody(t *testing.T) {
	r := newRig(t)
	for name, test := range map[string]struct {
		path, body string
		status     int
		says       []string // parts of the detail
	}{
		"an unknown field is named":                      {instancesPath, `{"optionz":"x"}`, 422, []string{"body.optionz", "unexpected"}},
		"a field in another case is unknown":             {instancesPath, `{"Options":"x"}`, 422, []string{"body.Options"}},
		"an unknown field further inside is named":       {swapPath, `{"in":{"instance_id":"a","degree":1}}`, 422, []string{"body.in.degree"}},
		"an unknown field of a swap is named":            {swapPath, `{"gpus":[]}`, 422, []string{"body.gpus"}},
		"an unknown field of a secret is told":           {instancesPath, `{"options":"x","env_vars":{"KEY":{"from_file":"/f","or":1}}}`, 422, []string{"body.env_vars.KEY", "from_file"}},
		"a variable that is a number is named":           {instancesPath, `{"options":"x","env_vars":{"PORT":8000}}`, 422, []string{"body.env_vars.PORT", "string"}},
		"a variable that is null is named":               {instancesPath, `{"options":"x","env_vars":{"PORT":null}}`, 422, []string{"body.env_vars.PORT"}},
		"an annotation that is no string is named":       {instancesPath, `{"options":"x","annotations":{"a":1}}`, 422, []string{"body.annotations.a", "string"}},
		"options that are a list are refused":            {instancesPath, `{"options":["x"]}`, 422, []string{"body.options", "string"}},
		"args that are a string are refused":             {instancesPath, `{"args":"x"}`, 422, []string{"body.args", "array"}},
		"an element of the wrong type is named":          {instancesPath, `{"options":"x","gpu_uuids":["a",2]}`, 422, []string{"body.gpu_uuids[1]"}},
		"an engine that is a program is refused":         {instancesPath, `{"options":"x","engine":"/bin/sh"}`, 422, []string{"body.engine", "vllm"}},
		"a list in place of an object is refused":        {instancesPath, `[]`, 422, []string{"body", "object"}},
		"null in place of an object is refused":          {instancesPath, `null`, 422, []string{"body", "object"}},
		"a negative duration is named":                   {swapPath, `{"gpu_uuids":["a"],"timeout":"-3s"}`, 422, []string{"body.timeout", "negative"}},
		"a negative number of seconds is named":          {swapPath, `{"gpu_uuids":["a"],"drain_timeout":-1}`, 422, []string{"body.drain_timeout", "negative"}},
		"a duration in words is refused":                 {swapPath, `{"gpu_uuids":["a"],"timeout":"soon"}`, 422, []string{"body.timeout", "1m30s"}},
		"a duration that only looks like one is refused": {swapPath, `{"gpu_uuids":["a"],"timeout":"1.2.3s"}`, 422, []string{"body.timeout", "1m30s"}},
		"a duration beyond all bounds is refused":        {swapPath, `{"gpu_uuids":["a"],"timeout":1e300}`, 422, []string{"body.timeout", "292 years"}},
		"a number that is too large for JSON is refused": {swapPath, `{"gpu_uuids":["a"],"timeout":1e999}`, 400, []string{"1e999"}},
		"a mode that does not exist is refused":          {swapPath, `{"gpu_uuids":["a"],"out":{"mode":"kill"}}`, 422, []string{"body.out.mode", "sleep", "stop"}},
		"a level of a half is refused":                   {instancesPath + "/a/sleep", `{"level":1.5}`, 422, []string{"body.level", "integer"}},
		"a level that does not exist is refused":         {instancesPath + "/a/sleep", `{"level":3}`, 422, []string{"body.level"}},
		"a level beyond all bounds is refused":           {instancesPath + "/a/sleep", `{"level":99999999999999999999}`, 422, []string{"body.level"}},
		"broken JSON is no JSON":                         {instancesPath, `{"options":`, 400, []string{"JSON"}},
		"text is no JSON":                                {instancesPath, `hello`, 400, []string{"invalid character"}},
		"what follows the document is refused":           {instancesPath, `{"options":"x"} {}`, 400, []string{"after top-level value"}},
		"bytes that are no UTF-8 are refused":            {instancesPath, "{\"options\":\"\xff\xfe\"}", 400, []string{"UTF-8"}},
		"deep nesting is refused":                        {instancesPath, strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), 400, []string{"depth"}},
		"less deep nesting is refused for its type":      {instancesPath, `{"options":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 422, []string{"body.options"}},
		"10,000 unknown keys are refused":                {instancesPath, "{" + keys(10_000, "1") + "}", 422, []string{"body.k0"}},
		"10,000 annotations are too many":                {instancesPath, `{"options":"x","annotations":{` + keys(10_000, `"v"`) + `}}`, 422, []string{"body.annotations", "1024"}},
		"10,000 variables are too many":                  {instancesPath, `{"options":"x","env_vars":{` + keys(10_000, `"v"`) + `}}`, 422, []string{"body.env_vars", "4096"}},
		"no body where one is needed is refused":         {instancesPath, ``, 400, []string{"body is required"}},
		"no body of a swap is refused":                   {swapPath, ``, 400, []string{"body is required"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.do(t, http.MethodPost, test.path, test.body)
			assert.Equal(t, test.status, got.status, got.body)
			problem := got.problem(t)
			assert.Equal(t, test.status, problem.Status)
			assert.Equal(t, launcherapi.CodeInvalid, problem.Code)
			for _, part := range test.says {
				assert.Contains(t, problem.Detail, part)
			}
			assert.Less(t, len(got.body), 8<<10, "the answer to a bad body is short")
			assert.Empty(t, r.instances.Record())
			reqs, _ := r.swaps.Requests()
			assert.Empty(t, reqs)
		})
	}
}

func TestARefusalNeverRepeatsAValue(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{
		`{"options":"x","env_vars":{"KEY":{"value":"hunter2"}}}`,
		`{"options":"x","env_vars":{"KEY":["hunter2"]}}`,
		`{"options":"x","env_vars":"hunter2"}`,
		`{"options":"x","env_vars":{"KEY":"hunter2"},"bogus":"hunter2"}`,
		`{"options":"x","env_vars":{"KEY":"hunter2"}`,
	} {
		got := r.do(t, http.MethodPost, instancesPath, body)
		assert.NotContains(t, got.body, "hunter2")
		assert.GreaterOrEqual(t, got.status, 400)
	}
}

func TestABodyOfTenMebibytesIsTooLarge(t *testing.T) {
	r := newRig(t)
	body := func(size int) string {
		frame := `{"options":""}`
		return `{"options":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	for _, size := range []int{api.MaxBodyBytes, api.MaxBodyBytes + 1, 3 * api.MaxBodyBytes} {
		got := r.do(t, http.MethodPost, instancesPath, body(size))
		assert.Equal(t, http.StatusRequestEntityTooLarge, got.status)
		assert.Equal(t, launcherapi.CodeTooLarge, got.problem(t).Code)
	}
	assert.Empty(t, r.instances.Record())
	r.instances.FailNext(launcher.Existsf("it was read"))
	got := r.do(t, http.MethodPost, instancesPath, body(api.MaxBodyBytes-1))
	assert.Equal(t, http.StatusConflict, got.status)
}

func TestAClientThatSendsAllBeforeItReadsSeesThatTheBodyIsTooLarge(t *testing.T) {
	r := newRig(t)
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	size := 3 * api.MaxBodyBytes
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", instancesPath, size)
	require.NoError(t, err)
	_, err = io.Copy(conn, io.LimitReader(endless{}, int64(size)))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

// endless is a reader of white space.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = ' '
	}
	return len(p), nil
}

func TestABodyThatDoesNotCallItselfJSONIsRefused(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/xml", "a+b;c+d"} {
		got := r.do(t, http.MethodPost, instancesPath, `{"options":"x"}`, "Content-Type", kind)
		assert.Equal(t, http.StatusUnsupportedMediaType, got.status, kind)
		assert.Contains(t, got.problem(t).Detail, kind+"; send it with the header Content-Type: application/json")
	}
	for _, kind := range []string{"application/json; charset=utf-8", "application/merge+json", ""} {
		got := r.do(t, http.MethodPost, instancesPath, `{"options":"x"}`, "Content-Type", kind)
		assert.Equal(t, http.StatusCreated, got.status, kind)
	}
}

func TestOptionalFieldsMayBeNull(t *testing.T) {
	r := newRig(t)
	got := r.do(t, http.MethodPut, instancesPath+"/a", `{"options":"x","args":null,"gpu_uuids":null,"env_vars":null,"annotations":null,"engine":null}`)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	got = r.do(t, http.MethodPost, instancesPath+"/a/sleep", `{"level":null,"drain_timeout":null,"timeout":null,"wait":null}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	r.swaps.Next(apitest.Over(launcherapi.SwapResult{SwapID: "s", Outcome: launcherapi.OutcomeNoop, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{}}, nil), nil)
	got = r.do(t, http.MethodPost, swapPath, `{"gpu_uuids":["a"],"in":null,"out":null,"timeout":null,"drain_timeout":null,"canary":null,"dry_run":null}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
}

func TestBadParametersAreNamed(t *testing.T) {
	r := newRig(t)
	for path, location := range map[string]string{
		instancesPath + "?detail=maybe":                     "query.detail",
		instancesPath + "/watch?since=x":                    "query.since",
		instancesPath + "/watch?since=-1":                   "query.since",
		instancesPath + "/watch?since=99999999999999999999": "query.since",
		instancesPath + "/watch?heartbeat=1ms":              "query.heartbeat",
		instancesPath + "/watch?heartbeat=-1s":              "query.heartbeat",
		instancesPath + "/watch?heartbeat=often":            "query.heartbeat",
		instancesPath + "/a/log?follow=perhaps":             "query.follow",
	} {
		got := r.do(t, http.MethodGet, path, "")
		assert.Equal(t, http.StatusUnprocessableEntity, got.status, path)
		problem := got.problem(t)
		require.NotEmpty(t, problem.Errors, path)
		assert.Equal(t, location, problem.Errors[0].Location, path)
	}
}
