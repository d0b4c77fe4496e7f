package podresources_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/rawhttp"
)

func TestStalledBodyIsAnsweredAndItsConnectionEnds(t *testing.T) {
	n := newNode(t, func(o *podresources.Options) { o.BodyTimeout = 100 * time.Millisecond })
	var conn net.Conn
	require.Eventually(t, func() (connected bool) { // the server bounds the handshake by the same time
		c, err := n.dial()
		conn = c
		return err == nil
	}, patience.Wait(), time.Millisecond)
	rawhttp.StallBodyOn(t, conn, "POST "+podresourcesapi.Path+" HTTP/1.1", http.StatusMethodNotAllowed)
}
