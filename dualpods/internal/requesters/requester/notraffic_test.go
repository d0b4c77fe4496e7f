package requester

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestRequesterWithoutTrafficIsBoundAndDoesNotListen(t *testing.T) {
	s := start(t)
	serving := configFor(t, "one", listen(t, echo))
	config := requesterapi.ProxyConfig{Binding: "one", ServingPort: serving.ServingPort, NoTraffic: true}
	address := net.JoinHostPort("127.0.0.1", itoa(config.ServingPort))

	held := s.call(http.MethodPut, s.spi+requesterapi.PathProxyHold, `{"binding": "one", "serving_port": `+itoa(config.ServingPort)+`}`)
	require.Equal(t, 200, held.status, held.body)
	got := s.put(config)
	require.Equal(t, 200, got.status, got.body)
	now := read[requesterapi.Proxy](t, got)
	assert.Equal(t, []any{config, requesterapi.StateBound, ""}, []any{now.ProxyConfig, now.State, now.Holding})
	requireRefused(t, address)
	require.Equal(t, 200, s.put(config).status, "it is bound already")
	require.Equal(t, 409, s.put(serving).status, "another binding of the same name")
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady+"?binding=one", "").status)
	require.Equal(t, 200, s.get(requesterapi.PathReady).status)

	unbound := s.delete("binding=one")
	require.Equal(t, 200, unbound.status)
	assert.Zero(t, read[requesterapi.Unbound](t, unbound))
	require.Equal(t, 200, s.put(serving).status, "it can be bound anew")
}

func TestBindingWithoutTrafficNamesNoTarget(t *testing.T) {
	s := start(t)
	for text, says := range map[string]string{
		`{"no_traffic": true}`: "name the binding",
		`{"binding": "one", "no_traffic": true, "address": "10.0.0.7", "port": 8000}`: "leave them out",
	} {
		got := s.call(http.MethodPut, s.spi+requesterapi.PathProxyConfig, text)
		assert.Equal(t, 400, got.status, text)
		assert.Contains(t, got.body, says)
	}
}
