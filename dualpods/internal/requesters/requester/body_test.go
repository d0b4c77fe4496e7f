package requester

import (
	"net/http"
	"testing"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/rawhttp"
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
		t.Run(name, func(t *testing.T) { rawhttp.StallBody(t, c.address, c.head+" HTTP/1.1", c.status) })
	}
}
