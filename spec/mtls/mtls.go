// Package mtls secures the programs of hotseat by mutual TLS, so that they accept calls only from
// clients with a certificate. It configures servers, and has the names in the certificates of
// the controller and of launchers. Certificates are X.509 in PEM.
package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"time"
)

// The folder in Pods with the files from the controller, and their names, which are those of
// Secrets of the type kubernetes.io/tls and of the ConfigMap kube-root-ca.crt.
const (
	Dir      = "/etc/hotseat"
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	CAFile   = "ca.crt" // authorities that may sign certificates of clients
)

// ConfigMap is the name of the ConfigMap with CAFile, which the controller creates in each
// namespace that it watches. A requester accepts calls only from the controller if the
// container of its program mounts it at Dir.
const ConfigMap = "hotseat-ca"

// LauncherName is the name in the certificate of the launchers of a
// LauncherConfig.
func LauncherName(namespace, config string) string {
	return config + "." + namespace + ".launchers.hotseat.dev"
}

// AgentName is the name in the certificate of the agents of the controller in that
// namespace.
func AgentName(namespace string) string { return namespace + ".agents.hotseat.dev" }

// FrontDoorName is the name in the certificate of the front doors of the controller in that
// namespace.
func FrontDoorName(namespace string) string { return namespace + ".frontdoors.hotseat.dev" }

// Server configures the TLS of a server.
type Server struct {
	// CertFile and KeyFile have the server's certificate and key. Both empty: the program
	// creates a self-signed certificate.
	CertFile, KeyFile string
	// ClientCAFile has the authorities that may sign certificates of clients. Empty: the
	// server does not ask clients for a certificate.
	ClientCAFile string
	// RequireClient refuses clients without a certificate of ClientCAFile in the handshake.
	RequireClient bool
	// Peer is the name in the certificates of servers that call each other. No other server
	// accepts these certificates from a client. A server with a Peer accepts connections only from
	// its peers, and from clients with a certificate. Empty: the server has no peers.
	Peer string
}

// Config returns the TLS configuration of a server of HTTP/1.1. The server reads the files again
// for each connection, so that renewed files take effect at once. While a file cannot be read,
// all connections fail. The error names a file that cannot be used now.
//
// A connection with an invalid or expired client certificate fails. A client without a
// certificate reaches the handler, which checks [Shown], because probes of Kubernetes have none.
func (s Server) Config() (*tls.Config, error) {
	var own *tls.Certificate
	if s.CertFile == "" {
		var err error
		if own, err = makeOwn(); err != nil {
			return nil, err
		}
	}
	now := func() (*tls.Config, error) {
		certificate, err := own, error(nil)
		if own == nil {
			certificate, err = s.readCertificate()
		}
		if err != nil {
			return nil, err
		}
		// With session tickets, a client whose certificate is no longer valid could connect.
		c := &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*certificate},
		}
		if s.ClientCAFile != "" {
			c.ClientAuth = tls.VerifyClientCertIfGiven
			c.ClientCAs, err = ReadPool(s.ClientCAFile)
			if s.RequireClient {
				c.ClientAuth = tls.RequireAndVerifyClientCert
			}
		}
		if s.Peer != "" {
			c.ClientAuth, c.VerifyConnection = tls.RequireAnyClientCert, s.verifyClient(c.ClientCAs)
		}
		return c, err
	}
	if _, err := now(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now() },
	}, nil
}

// verifyClient returns what verifies the certificate of a client, or of a peer.
func (s Server) verifyClient(authorities *x509.CertPool) func(tls.ConnectionState) error {
	return func(c tls.ConnectionState) error {
		shown := c.PeerCertificates[0]
		_, err := shown.Verify(x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err == nil {
			return nil
		}
		if _, other := shown.Verify(x509.VerifyOptions{Roots: authorities, DNSName: s.Peer, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); other != nil {
			return fmt.Errorf("the certificate is neither a client's (%w) nor one of %s: %w", err, s.Peer, other)
		}
		return nil
	}
}

// Call returns the TLS configuration by which a server calls its peers. It reads the files now.
func (s Server) Call() (*tls.Config, error) {
	certificate, err := s.readCertificate()
	if err != nil {
		return nil, err
	}
	authorities, err := ReadPool(s.ClientCAFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: s.Peer, RootCAs: authorities, Certificates: []tls.Certificate{*certificate}}, nil
}

func (s Server) readCertificate() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate %s with the key %s: %w", s.CertFile, s.KeyFile, err)
	}
	return &c, nil
}

// ReadPool reads the certificates of a file, at least one.
func ReadPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificates of authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("cannot use %s: there is no certificate in PEM in it", path)
	}
	return pool, nil
}

// Shown reports whether the client of a request has a certificate that an authority of the
// server's ClientCAFile has signed.
func Shown(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// ErrNotShown is the error for a client without a certificate.
var ErrNotShown = errors.New("a client certificate is required, signed by an authority in the file of --client-ca")

// ownLife is longer than any process.
const ownLife = 100 * 365 * 24 * time.Hour

// makeOwn makes a self-signed certificate.
func makeOwn() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hotseat"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(ownLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
