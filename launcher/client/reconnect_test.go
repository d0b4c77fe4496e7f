package client_test

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// impatient is a client whose streams are taken up again for so long, and how
// often it has told that one broke off.
func (h *host) impatient(t *testing.T, reconnect time.Duration) (*client.Client, *atomic.Int32) {
	t.Helper()
	var lost atomic.Int32
	c, err := client.New(client.Options{
		Server: h.addr, Heartbeat: 100 * time.Millisecond, Reconnect: reconnect,
		Lost: func(err error) { assert.Error(t, err); lost.Add(1) },
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, &lost
}

func TestAStreamToALauncherThatWasNeverReachedEndsAtOnce(t *testing.T) {
	h := newHost(t)
	h.down(t)
	c, lost := h.impatient(t, time.Hour)
	require.ErrorIs(t, c.FollowLog(within(t), "a", 0, io.Discard), syscall.ECONNREFUSED)
	for _, err := range c.Watch(within(t), nil) {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	require.Zero(t, lost.Load(), "nothing was there to be lost")
}

func TestAFollowedLogThatBreaksOffIsTakenUpAgainAndGivenUpAfterItsTime(t *testing.T) {
	h := newHost(t)
	c, lost := h.impatient(t, time.Hour)
	_, err := c.Create(within(t), "a", spec("m"))
	require.NoError(t, err)
	h.writeLog(t, "a", "one\n")
	out, ended := &heard{}, make(chan error, 1)
	go func() { ended <- c.FollowLog(within(t), "a", 0, out) }()
	out.says(t, "one\n")
	h.down(t)
	h.up(t)
	h.writeLog(t, "a", "two\n")
	out.says(t, "one\ntwo\n")
	require.Positive(t, lost.Load())

	givesUp, lost := h.impatient(t, 300*time.Millisecond)
	out, ended = &heard{}, make(chan error, 1)
	go func() { ended <- givesUp.FollowLog(within(t), "a", 0, out) }()
	out.says(t, "one\ntwo\n")
	before := lost.Load()
	h.down(t)
	err = <-ended
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "for 300ms")
	require.EqualValues(t, before+1, lost.Load(), "once for each time, however many attempts there are")
}

func TestAWatchThatBreaksOffIsGivenUpAfterItsTime(t *testing.T) {
	h := newHost(t)
	c, lost := h.impatient(t, 300*time.Millisecond)
	h.create(t, "a")
	var got error
	for event, err := range c.Watch(within(t), nil) {
		if event.Type == launcherapi.EventCreated {
			h.down(t)
		}
		got = err
	}
	require.ErrorIs(t, got, syscall.ECONNREFUSED)
	require.EqualValues(t, 1, lost.Load())
}

func TestALogThatIsNotAnsweredForEndsAtOnceWhereNothingEverAnswered(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()
	c, err := client.New(client.Options{Server: mute.Addr().String(), Heartbeat: 100 * time.Millisecond, Reconnect: time.Hour})
	require.NoError(t, err)
	defer c.Close()
	require.ErrorContains(t, c.FollowLog(within(t), "a", 0, io.Discard), "silent")
}
