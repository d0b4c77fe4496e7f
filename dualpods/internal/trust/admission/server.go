package admission

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// NewServer makes the server that the API server asks. The certificate is asked for at
// each connection.
func NewServer(port int, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), guard *Guard) webhook.Server {
	server := webhook.NewServer(webhook.Options{Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.GetCertificate, c.SessionTicketsDisabled = tls.VersionTLS13, certificate, true
	}}})
	server.Register(Path, &admission.Webhook{Handler: guard})
	return server
}
