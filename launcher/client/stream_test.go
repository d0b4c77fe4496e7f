package client_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// noting is an http.RoundTripper that notes calls and answers none.
type noting struct {
	name  string
	calls *[]string
}

func (n noting) RoundTrip(req *http.Request) (*http.Response, error) {
	*n.calls = append(*n.calls, n.name+" "+req.URL.Path)
	return nil, errors.New("nobody is there")
}

func TestWatchesAreCalledByTheClientForStreamsAndAllElseByTheOther(t *testing.T) {
	var calls []string
	c, err := client.New(client.Options{
		Server: "launcher", Reconnect: time.Nanosecond,
		HTTPClient: &http.Client{Transport: noting{"call", &calls}}, Streams: &http.Client{Transport: noting{"stream", &calls}},
	})
	require.NoError(t, err)
	_, err = c.List(t.Context())
	require.ErrorContains(t, err, "nobody is there")
	since := uint64(1)
	for _, err := range c.Watch(t.Context(), &since) {
		require.ErrorContains(t, err, "nobody is there")
	}
	for _, err := range client.FollowModels(t.Context(), c, func(m launcherapi.Model) launcherapi.Model { return m }) {
		require.ErrorContains(t, err, "nobody is there")
	}
	assert.Equal(t, []string{"call /v2/vllm/instances", "stream /v2/vllm/instances/watch", "stream /v2/models/watch"}, calls)
}
