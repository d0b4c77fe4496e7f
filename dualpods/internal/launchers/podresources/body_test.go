package podresources_test

import (
	"net/http"
	"testing"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/test/rawhttp"
)

func TestStalledBodyIsAnsweredAndItsConnectionEnds(t *testing.T) {
	n := newNode(t, func(o *podresources.Options) { o.BodyTimeout = time.Nanosecond })
	rawhttp.StallBody(t, n.address, "POST "+podresourcesapi.Path+" HTTP/1.1", http.StatusMethodNotAllowed)
}
