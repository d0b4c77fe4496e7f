package requester

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestTheAcceleratorsAreThoseOfThePodInTheirOrder(t *testing.T) {
	s := start(t)
	got := s.get(requesterapi.PathAccelerators)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, []string{"GPU-b", "GPU-a"}, read[[]string](t, got))
	require.Equal(t, s.state().Instance, got.header.Get(requesterapi.InstanceHeader))
}

func TestAPodWhoseGPUsCannotBeToldSaysWhyToWhoeverAsks(t *testing.T) {
	s := start(t, func(o *Options) { o.Getenv = environment(envVisible, "0,1") })
	requireProblem(t, s.get(requesterapi.PathAccelerators), 500, requesterapi.CodeNoAccelerators, "0 is an index")
	requireProblem(t, s.get(requesterapi.PathAcceleratorMemoryUsage), 500, requesterapi.CodeNoAccelerators, "0 is an index")
}

func TestReadinessIsWhatTheControllerSays(t *testing.T) {
	s := start(t)
	ready := func(status int, text string) {
		t.Helper()
		for _, base := range []string{s.spi, s.probes} {
			got := s.call(http.MethodGet, base+requesterapi.PathReady, "")
			assert.Equal(t, status, got.status)
			assert.Equal(t, text+"\n", got.body)
		}
	}
	ready(503, "not ready: unbound")
	requireProblem(t, s.post(requesterapi.PathBecomeReady, ""), 409, requesterapi.CodeUnbound, "PUT /v1/proxy/config first")
	s.bind("one", listen(t, echo))
	ready(503, "not ready: bound")
	p := requireProblem(t, s.post(requesterapi.PathBecomeReady+"?binding=two", ""), 409, requesterapi.CodeOtherBinding, "bound to one, not to two")
	assert.Equal(t, "one", p.Binding)
	ready(503, "not ready: bound")
	for range 2 {
		require.Equal(t, 200, s.post(requesterapi.PathBecomeReady+"?binding=one", "").status)
		ready(200, "OK")
	}
	assert.True(t, s.state().Ready)
	requireProblem(t, s.post(requesterapi.PathBecomeUnready+"?binding=two", ""), 409, requesterapi.CodeOtherBinding, "nothing has changed")
	ready(200, "OK")
	for range 2 {
		require.Equal(t, 200, s.post(requesterapi.PathBecomeUnready, "").status)
		ready(503, "not ready: bound")
	}
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status, "a caller need not name the binding")
	require.Equal(t, 200, s.delete("binding=one").status)
	ready(503, "not ready: unbound")
}

func TestABadRequestIsToldWhatWouldBeRight(t *testing.T) {
	s := start(t)
	const config, log = requesterapi.PathProxyConfig, requesterapi.PathSetLog
	for name, row := range map[string]struct {
		method, path, body string
		code, detail       string
	}{
		"no body":              {"PUT", config, ``, "invalid", "send an object such as"},
		"a list":               {"PUT", config, `[]`, "invalid", "send an object such as"},
		"an unknown field":     {"PUT", config, `{"adress": "10.0.0.7", "port": 1}`, "invalid", `unknown field "adress"`},
		"two objects":          {"PUT", config, `{"address": "10.0.0.7", "port": 1} {}`, "invalid", "send one object"},
		"no address":           {"PUT", config, `{"port": 1}`, "invalid", "address is missing"},
		"address with port":    {"PUT", config, `{"address": "10.0.0.7:80", "port": 1}`, "invalid", "give one without port"},
		"address of nobody":    {"PUT", config, `{"address": "0.0.0.0", "port": 1}`, "invalid", "not that of a single machine"},
		"long name":            {"PUT", config, `{"address": "` + strings.Repeat("a.", 200) + `a", "port": 1}`, "invalid", "neither an IP address nor a DNS name"},
		"no port":              {"PUT", config, `{"address": "10.0.0.7"}`, "invalid", "port is missing or 0"},
		"port too large":       {"PUT", config, `{"address": "10.0.0.7", "port": 65536}`, "invalid", "send an object such as"},
		"port as a string":     {"PUT", config, `{"address": "10.0.0.7", "port": "1"}`, "invalid", "send an object such as"},
		"binding with a space": {"PUT", config, `{"binding": "a b", "address": "10.0.0.7", "port": 1}`, "invalid", "printable ASCII"},
		"binding too long":     {"PUT", config, `{"binding": "` + strings.Repeat("a", 513) + `", "address": "10.0.0.7", "port": 1}`, "invalid", "give at most 512"},
		"metrics by file":      {"PUT", config, `{"address": "10.0.0.7", "port": 1, "metrics_url": "file:///etc/passwd"}`, "invalid", "give an absolute http URL"},
		"metrics by path":      {"PUT", config, `{"address": "10.0.0.7", "port": 1, "metrics_url": "/metrics"}`, "invalid", "give an absolute http URL"},
		"itself":               {"PUT", config, `{"address": "127.0.0.1", "port": 9, "serving_port": 9}`, "invalid", "this requester's own serving port"},
		"unbind nobody":        {"DELETE", config, ``, "invalid", "binding is missing"},
		"drain for a number":   {"DELETE", config + "?binding=x&drain_timeout=10", ``, "invalid", "such as 10s"},
		"drain backwards":      {"DELETE", config + "?binding=x&drain_timeout=-1s", ``, "invalid", "from 0s to 1h0m0s"},
		"drain for ever":       {"DELETE", config + "?binding=x&drain_timeout=61m", ``, "invalid", "from 0s to 1h0m0s"},
		"idle for a word":      {"DELETE", config + "?binding=x&idle_timeout=soon", ``, "invalid", "idle_timeout is"},
		"log without place":    {"POST", log, `x`, "invalid", "startPos is \"\""},
		"log before its start": {"POST", log + "?startPos=-1", `x`, "invalid", "0 or more"},
		"log at a word":        {"POST", log + "?startPos=end", `x`, "invalid", "0 or more"},
		"log beyond all":       {"POST", log + "?startPos=9223372036854775807", `x`, "invalid", "0 or more"},
		"log with a gap":       {"POST", log + "?startPos=1", `x`, "log_gap", "the log ends at 0"},
	} {
		t.Run(name, func(t *testing.T) {
			requireProblem(t, s.call(row.method, s.spi+row.path, row.body), 400, row.code, row.detail)
		})
	}
	requireProblem(t, s.call("PUT", s.spi+config, strings.Repeat(" ", requesterapi.MaxConfig+1)), 413, requesterapi.CodeTooLarge, "more than 65536 bytes")
	requireProblem(t, s.post(log+"?startPos=0", strings.Repeat("x", requesterapi.MaxLogChunk+1)), 413, requesterapi.CodeTooLarge, "more than 1048576 bytes")
	assert.Empty(t, s.log.String())
	assert.Equal(t, requesterapi.StateUnbound, s.state().State)
}

func TestARouteThatIsNotThereOrAnotherMethodIsRefused(t *testing.T) {
	s := start(t)
	assert.Equal(t, 404, s.get("/v1/nothing").status)
	assert.Equal(t, 405, s.post(requesterapi.PathAccelerators, "").status)
	assert.Equal(t, 405, s.get(requesterapi.PathBecomeReady).status)
	assert.Equal(t, 405, s.call(http.MethodPatch, s.spi+requesterapi.PathProxyConfig, "{}").status)
	assert.Equal(t, 404, s.call(http.MethodPost, s.probes+requesterapi.PathBecomeReady, "").status, "the SPI is not at the port of the probes")
	assert.Equal(t, 200, s.call(http.MethodGet, s.probes+"/healthz", "").status)
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	s := start(t)
	_, err := New(Options{Host: "127.0.0.1", SPIPort: portOf(s.r.spi.listener)})
	require.ErrorContains(t, err, "cannot listen on the port of the SPI")
	_, err = New(Options{Host: "127.0.0.1", ProbesPort: 70000})
	require.ErrorContains(t, err, "give one from 1 to 65535")
	_, err = New(Options{AcceleratorsFrom: "smi"})
	require.ErrorContains(t, err, "use auto, nvml or env")
	_, err = New(Options{TerminationGrace: -1})
	require.ErrorContains(t, err, "give 0s or more")
}
