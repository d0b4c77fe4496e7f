package nodeview

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/mtls/mtlstest"
)

func TestNewAuthorityDoesNotBreakAnOpenTLSStream(t *testing.T) {
	const name = "vllm.ns.launchers.hotseat.dev"
	ca, next := mtlstest.New(t, "ca"), mtlstest.New(t, "next")
	h := serveHost(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server(t, name)}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
		s.StartTLS()
	})
	var now atomic.Pointer[mtlstest.CA]
	now.Store(ca)
	s := newSet(t, Options{TLS: func(_ context.Context, asked string) (*tls.Config, error) {
		by := now.Load()
		return &tls.Config{RootCAs: by.Pool(), ServerName: asked, Certificates: []tls.Certificate{by.Client(t, time.Hour)}}, nil
	}})
	target := Target{Address: strings.TrimPrefix(h.server.URL, "https://"), Access: Access{Name: name, Token: rightToken}}
	s.Watch("one", target)
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && h.streams() == 1 })
	now.Store(next) // the launcher does not know this authority
	h.put("i", "awake")
	s.until("an event comes by the open stream", "one", func(v View) bool { return v.Connected && len(v.Instances) == 1 })
	s.Watch("other", target)
	s.until("a new connection is refused", "other", func(v View) bool { return strings.Contains(v.Why, "unknown authority") })
	assert.True(t, s.View("one").Connected)
}
