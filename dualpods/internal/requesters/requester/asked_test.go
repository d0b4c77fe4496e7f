package requester

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestMetricsAndProfilesHavePortsOfTheirOwnWhereAskedFor(t *testing.T) {
	assert.Empty(t, start(t).r.AskedAddrs(), "nobody asks")

	s := start(t, func(o *Options) { o.MetricsPort, o.DebugPort = int(freePort(t)), int(freePort(t)) })
	addresses := s.r.AskedAddrs()
	require.Len(t, addresses, 2)
	metrics, profiles := "http://"+addresses[0].String(), "http://"+addresses[1].String()
	got := s.call("GET", metrics+"/metrics", "")
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.body, "hotseat_requester_bound 0\n")
	got = s.call("GET", profiles+"/debug/pprof/goroutine?debug=1", "")
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.body, "goroutine profile:")
	for _, nowhere := range []string{metrics + requesterapi.PathReady, metrics + "/debug/pprof/", profiles + "/metrics", profiles + "/debug/pprof/cmdline"} {
		assert.Equal(t, 404, s.call("GET", nowhere, "").status, nowhere)
	}
	for _, port := range []int{s.r.opts.MetricsPort, s.r.opts.DebugPort} {
		config := configFor(t, "one", listen(t, echo))
		config.ServingPort = uint16(port)
		requireProblem(t, s.put(config), 400, requesterapi.CodeInvalid, "the requester's own")
	}
}

func TestProfilesAreOnTheLoopbackAddressAlone(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Host, o.MetricsPort, o.DebugPort = "", int(freePort(t)), int(freePort(t))
	})
	addresses := s.r.AskedAddrs()
	require.Len(t, addresses, 2)
	assert.True(t, addresses[0].(*net.TCPAddr).IP.IsUnspecified())
	assert.True(t, addresses[1].(*net.TCPAddr).IP.IsLoopback())
}

func TestTakenPortOfMetricsEndsTheStartAndFreesTheOthers(t *testing.T) {
	taken, probes := start(t), int(freePort(t))
	_, err := New(Options{Host: "127.0.0.1", AcceleratorsFrom: "env", ProbesPort: probes, MetricsPort: portOf(taken.r.spi.listener)})
	require.ErrorContains(t, err, "cannot listen on the port of the metrics")
	next, err := New(Options{Host: "127.0.0.1", AcceleratorsFrom: "env", ProbesPort: probes})
	require.NoError(t, err)
	require.NoError(t, next.Close())
}
