// Package rawhttp sends what no HTTP client would send.
package rawhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// StallBody sends a request whose body stops after its first byte. It wants an answer of this
// status, and then the end of the connection. The head of the request is its first line and
// its header lines but for Host and Content-Length.
func StallBody(t *testing.T, address, head string, status int) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	StallBodyOn(t, conn, head, status)
}

// StallBodyOn is StallBody on a connection that is there. It closes the connection.
func StallBodyOn(t *testing.T, conn net.Conn, head string, status int) {
	t.Helper()
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, err := io.WriteString(conn, head+"\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, status, response.StatusCode, string(body))
	assert.True(t, response.Close)
	_, err = reader.ReadByte()
	assert.ErrorIs(t, err, io.EOF, "the server waits for the rest of the body")
}
