package e2e

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestASwapCutsAnIdleWebSocketByACloseFrame(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	config, err := websocket.NewConfig(fmt.Sprintf("ws://127.0.0.1:%d/v1/realtime?model=a", a.Port), "http://127.0.0.1")
	require.NoError(t, err)
	ws, err := config.DialContext(t.Context())
	require.NoError(t, err)
	defer func() { _ = ws.Close() }() // it is closed below, unless a check fails
	require.NoError(t, ws.SetDeadline(time.Now().Add(patience)))
	require.NoError(t, websocket.Message.Send(ws, "hello"))
	var said string
	require.NoError(t, websocket.Message.Receive(ws, &said))
	require.Equal(t, "hello", said)
	assert.Equal(t, 1, n.Get("a").InFlight)

	body := toNew("b", On(0))
	body["drain_timeout"] = "300ms"
	done := make(chan Answer, 1)
	go func() {
		answer, _ := tryCall(context.Background(), "POST", n.URL+"/v2/vllm/swap", body)
		done <- answer
	}()
	frame, err := ws.NewFrameReader()
	require.NoError(t, err)
	assert.EqualValues(t, websocket.CloseFrame, frame.PayloadType())
	why, err := io.ReadAll(frame)
	require.NoError(t, err)
	assert.Equal(t, "\x03\xf5the launcher cut the connection: the instance is falling asleep", string(why)) // 1013
	require.NoError(t, ws.Close())

	answer := <-done
	require.Equal(t, 200, answer.Status, "%s", answer.Body)
	var r launcherapi.SwapResult
	answer.Into(t, &r)
	assert.Equal(t, 1, r.Cut)
	assert.Equal(t, "sleeping", n.Get("a").State)
}
