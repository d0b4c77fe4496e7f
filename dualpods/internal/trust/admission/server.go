package admission

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// NewServer returns the webhook server that the API server calls. The server calls certificate
// for each connection.
func NewServer(port int, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), guard *Guard) webhook.Server {
	server := webhook.NewServer(webhook.Options{Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.GetCertificate, c.SessionTicketsDisabled = tls.VersionTLS13, certificate, true
	}}})
	server.Register(Path, &admission.Webhook{Handler: guard})
	return server
}
