package requester

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestAnUnboundRequesterThatIsToldToEndEnds(t *testing.T) {
	s := start(t)
	s.terminate()
	require.NoError(t, receive(t, s.ended))
}

func TestABoundRequesterThatIsToldToEndCarriesOnUntilItIsUnbound(t *testing.T) {
	s := start(t)
	serving := s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	conn := dial(t, serving)
	require.Equal(t, "a", say(t, conn, "a"))
	s.terminate()
	eventually(t, func() bool { return s.state().Terminating })
	got := s.call("GET", s.probes+requesterapi.PathReady, "")
	require.Equal(t, 503, got.status)
	require.Equal(t, "not ready: terminating\n", got.body)
	requireProblem(t, s.post(requesterapi.PathBecomeReady, ""), 409, requesterapi.CodeTerminating, "stays unready")
	require.Equal(t, 200, s.put(s.state().ProxyConfig).status, "the same binding is there still")
	require.Equal(t, "b", say(t, conn, "b"))
	require.Equal(t, "c", say(t, dial(t, serving), "c"), "clients that have not heard of the end are served")
	require.Empty(t, s.ended)
	require.Equal(t, 200, s.delete("binding=one&drain_timeout=0s").status)
	require.NoError(t, receive(t, s.ended))
	config := configFor(t, "two", "127.0.0.1:1")
	requireProblem(t, s.put(config), 409, requesterapi.CodeTerminating, "bind another one")
}

func TestARequesterThatNobodyUnbindsEndsWithItsGrace(t *testing.T) {
	s := start(t, func(o *Options) { o.TerminationGrace = 10 * time.Millisecond })
	conn := dial(t, s.bind("one", listen(t, echo)))
	require.Equal(t, "a", say(t, conn, "a"))
	s.terminate()
	require.NoError(t, receive(t, s.ended))
	require.NoError(t, s.r.Close())
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
	require.NoError(t, s.r.Close(), "a second close does nothing")
}
