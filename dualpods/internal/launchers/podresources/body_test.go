package podresources_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/test/patience"
)

func TestStalledBodyIsAnsweredAndItsConnectionEnds(t *testing.T) {
	n := newNode(t, func(o *podresources.Options) { o.BodyTimeout = time.Nanosecond })
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, err = io.WriteString(conn, "POST "+podresourcesapi.Path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	assert.True(t, resp.Close)
	_, err = reader.ReadByte()
	assert.ErrorIs(t, err, io.EOF, "the server waits for the rest of the body")
}
