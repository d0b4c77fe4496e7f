package client_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// whyBroken is why a stream of models ends whose answer a launcher begins so.
func whyBroken(t *testing.T, answer func(net.Conn)) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if assert.NoError(t, err) {
			answer(conn)
			assert.NoError(t, conn.Close())
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Server: server.URL, Heartbeat: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for _, err = range client.FollowModels(t.Context(), c, func(m launcherapi.Model) launcherapi.Model { return m }) {
	}
	require.Error(t, err)
	return err
}

const streamBegins = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"

func TestOfALauncherThatFallsSilentThatIsTheErrorWhereverItDoes(t *testing.T) {
	for what, begins := range map[string]string{
		"before it answers": "", "in the head of its answer": "HTTP/1.1 200 OK\r\nContent-", "in an error": "HTTP/1.1 503 No\r\nContent-Length: 99\r\n\r\n{",
		"before an event": streamBegins, "in an event": streamBegins + `{"type": "UPD`,
	} {
		t.Run(what, func(t *testing.T) {
			err := whyBroken(t, func(conn net.Conn) {
				_, err := io.WriteString(conn, begins)
				assert.NoError(t, err)
				_, _ = io.Copy(io.Discard, conn) // until the other side has given it up
			})
			assert.EqualError(t, err, "cannot read the watch stream: the launcher has fallen silent")
		})
	}
}

func TestAPartOfALineIsNoEvent(t *testing.T) {
	for what, c := range map[string]struct {
		last string
		cut  bool
		says string
	}{
		"the connection is reset in an event":       {`{"type": "UPD`, true, "connection reset by peer"},
		"the stream ends in an event":               {`{"type": "UPD`, false, "unexpected EOF"},
		"it ends before the end of an event's line": {`{"type": "HEARTBEAT", "object": {}}`, false, "unexpected EOF"},
	} {
		t.Run(what, func(t *testing.T) {
			err := whyBroken(t, func(conn net.Conn) {
				_, err := io.WriteString(conn, streamBegins+c.last)
				assert.NoError(t, err)
				if c.cut {
					assert.NoError(t, conn.(*net.TCPConn).SetLinger(0))
				}
			})
			assert.ErrorContains(t, err, c.says)
		})
	}
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
