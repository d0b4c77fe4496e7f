package requester

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestTerminatingRequesterServesThroughItsShutdownDelay(t *testing.T) {
	s := start(t, func(o *Options) { o.ShutdownDelay = time.Hour })
	serving := s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	assert.Zero(t, s.state().ShutdownDelayMS, "nobody told it to end")
	s.terminate()
	eventually(t, func() bool { return s.state().ShutdownDelayMS > 0 })
	require.Equal(t, "a", say(t, dial(t, serving), "a"))
	require.Equal(t, 503, s.call("GET", s.probes+requesterapi.PathReady, "").status)
}

func TestTerminatingRequesterServesAfterItsShutdownDelayUntilItIsUnbound(t *testing.T) {
	s := start(t, func(o *Options) { o.ShutdownDelay = time.Millisecond })
	serving := s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	s.terminate()
	eventually(t, func() bool { p := s.state(); return p.Terminating && p.ShutdownDelayMS == 0 })
	require.Equal(t, "b", say(t, dial(t, serving), "b"))
	require.Empty(t, s.ended)
	require.Equal(t, 200, s.delete("binding=one&drain_timeout=0s").status)
	require.NoError(t, receive(t, s.ended))
}

func TestRequesterThatWasNotReadyHasNoShutdownDelay(t *testing.T) {
	s := start(t, func(o *Options) { o.ShutdownDelay = time.Hour })
	s.bind("one", listen(t, echo))
	s.terminate()
	eventually(t, func() bool { return s.state().Terminating })
	assert.Zero(t, s.state().ShutdownDelayMS)
}

func TestDrainingRequesterHasNoShutdownDelay(t *testing.T) {
	s := start(t, func(o *Options) { o.ShutdownDelay = time.Hour })
	conn := dial(t, s.bind("one", listen(t, echo)))
	require.Equal(t, "a", say(t, conn, "a"))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	s.terminate()
	eventually(t, func() bool { return s.state().ShutdownDelayMS > 0 })
	s.goDelete("binding=one&drain_timeout=1h&idle_timeout=1h")
	eventually(t, func() bool { p := s.state(); return p.State == requesterapi.StateDraining && p.ShutdownDelayMS == 0 })
	require.NoError(t, conn.Close())
	require.NoError(t, receive(t, s.ended))
}

func TestShutdownDelayIsAtMostHalfOfTheGrace(t *testing.T) {
	grace := patience.Wait()
	s := start(t, func(o *Options) { o.ShutdownDelay, o.TerminationGrace = 10*grace, grace })
	s.bind("one", listen(t, echo))
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	s.terminate()
	eventually(t, func() bool { return s.state().Terminating })
	p := s.state()
	assert.Positive(t, p.ShutdownDelayMS)
	assert.LessOrEqual(t, p.ShutdownDelayMS, (grace/2).Milliseconds()+1)
	_, err := New(Options{ShutdownDelay: -time.Second})
	require.ErrorContains(t, err, "the shutdown delay -1s is negative: give 0s or more")
}

func TestDrainGoesOnWhenTheTerminationGraceIsOver(t *testing.T) {
	const grace = 10 * time.Millisecond
	s := start(t, func(o *Options) { o.TerminationGrace = grace })
	conn := dial(t, s.bind("one", listen(t, echo)))
	require.Equal(t, "a", say(t, conn, "a"))
	s.goDelete("binding=one&drain_timeout=1h&idle_timeout=1h")
	eventually(t, func() bool { return s.state().State == requesterapi.StateDraining })
	s.terminate()
	eventually(t, func() bool { return s.state().Terminating })
	for begun := time.Now(); time.Since(begun) < 10*grace; {
		require.Equal(t, "b", say(t, conn, "b"))
	}
	require.Empty(t, s.ended, "the connection is open")
	require.NoError(t, conn.Close())
	require.NoError(t, receive(t, s.ended))
}
