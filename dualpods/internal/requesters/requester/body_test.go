package requester

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestStalledBodyIsAnsweredAndItsConnectionEnds(t *testing.T) {
	s := start(t, func(o *Options) { o.bodyTime = time.Nanosecond })
	for name, c := range map[string]struct {
		head, address string
		status        int
	}{
		"the body is read":              {"PUT " + requesterapi.PathProxyConfig, s.r.SPIAddr().String(), http.StatusBadRequest},
		"the request is refused before": {"POST /nowhere", s.r.SPIAddr().String(), http.StatusNotFound},
		"a port whose calls have none":  {"GET " + requesterapi.PathReady, s.r.ProbesAddr().String(), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, c.address)
			_, err := io.WriteString(conn, c.head+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
			require.NoError(t, err)
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			assert.Equal(t, c.status, response.StatusCode)
			assert.True(t, response.Close)
			_, err = reader.ReadByte()
			assert.ErrorIs(t, err, io.EOF, "the server waits for the rest of the body")
		})
	}
}
