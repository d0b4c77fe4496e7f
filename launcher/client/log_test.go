package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// heard is a writer that a test can wait on.
type heard struct {
	mu   sync.Mutex
	text string
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text += string(p)
	return len(p), nil
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

func (h *heard) says(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return h.String() == want }, patience.Wait(), time.Millisecond, "heard %q", h)
}

func TestFollowingALogOutlastsRestartsAndEndsWithIt(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	_, err := c.Create(ctx, "a", spec("m"))
	require.NoError(t, err)
	h.writeLog(t, "a", "skipped\none\n")
	out, ended := &heard{}, make(chan error, 1)
	go func() { ended <- c.FollowLog(ctx, "a", int64(len("skipped\n")), out) }()
	out.says(t, "one\n")
	h.down(t)
	h.writeLog(t, "a", "two\n")
	h.up(t)
	out.says(t, "one\ntwo\n")
	h.down(t)
	h.up(t)
	h.writeLog(t, "a", "three\n")
	out.says(t, "one\ntwo\nthree\n")
	_, err = c.Delete(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	assert.Equal(t, "one\ntwo\nthree\n", out.String())
}

func TestFollowingALogEndsWithTheContextTheWriterOrARefusal(t *testing.T) {
	h := newHost(t)
	c := h.client(t)
	_, err := c.Create(within(t), "a", spec("m"))
	require.NoError(t, err)
	h.writeLog(t, "a", "one\n")

	ctx, cancel := context.WithCancel(context.Background())
	out, ended := &heard{}, make(chan error, 1)
	go func() { ended <- c.FollowLog(ctx, "a", 0, out) }()
	out.says(t, "one\n")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)

	full := errors.New("disk full")
	require.ErrorIs(t, c.FollowLog(within(t), "a", 0, broken{full}), full)
	assert.True(t, client.IsNotFound(c.FollowLog(within(t), "none", 0, out)))
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

// noter is a writer that wants to know what was dropped.
type noter struct{ heard }

func (n *noter) Dropped(from, to int64) error {
	_, err := n.Write(fmt.Appendf(nil, "<%d-%d>", from, to))
	return err
}

func TestFollowedLogThatLostAllItsBytesKeepsItsOffsets(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	_, err := c.Create(ctx, "a", spec("m"))
	require.NoError(t, err)
	h.writeLog(t, "a", "one\ntwo\n")
	h.dropLog(t, "a", 8)
	followed, ended := &noter{}, make(chan error, 1)
	go func() { ended <- c.FollowLog(ctx, "a", 2, followed) }()
	followed.says(t, "<2-8>")
	h.writeLog(t, "a", "three\n")
	followed.says(t, "<2-8>three\n")
	_, err = c.Delete(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

func TestDroppedBytesOfALogAreTold(t *testing.T) {
	h := newHost(t)
	c, ctx := h.client(t), within(t)
	_, err := c.Create(ctx, "a", spec("m"))
	require.NoError(t, err)
	h.writeLog(t, "a", "one\ntwo\nthree\n")
	h.dropLog(t, "a", 4)

	part, err := c.Log(ctx, "a", 0, 2)
	assert.Equal(t, launcherapi.CodeRange, launcher.CodeOf(err))
	assert.Equal(t, client.LogPart{Total: 14}, part)
	part, err = c.Log(ctx, "a", 0, -1)
	require.NoError(t, err)
	assert.Equal(t, client.LogPart{Bytes: []byte("two\nthree\n"), First: 4, Total: 14}, part)

	var person strings.Builder
	require.NoError(t, c.CopyLog(ctx, "a", 1, &person))
	assert.Equal(t, client.DroppedText(1, 4)+"two\nthree\n", person.String())
	out := &noter{}
	require.NoError(t, c.CopyLog(ctx, "a", 0, out))
	assert.Equal(t, "<0-4>two\nthree\n", out.String())

	followed, ended := &noter{}, make(chan error, 1)
	go func() { ended <- c.FollowLog(ctx, "a", 2, followed) }()
	followed.says(t, "<2-4>two\nthree\n")
	h.down(t)
	h.writeLog(t, "a", "four\nfive\n")
	h.dropLog(t, "a", 19)
	h.up(t)
	followed.says(t, "<2-4>two\nthree\n<14-19>five\n")
	_, err = c.Delete(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, <-ended)
}
