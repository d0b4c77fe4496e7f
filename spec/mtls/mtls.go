// Package mtls has the programs of hotseat take orders from those alone who show
// a certificate: TLS with certificates on both sides. It says how a program
// serves, and by which names the controller and launchers of Kubernetes know one
// another. Certificates are X.509 in PEM.
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

// Where programs in Pods have the files that the controller gives them. The names
// of the files are those of Secrets of the type kubernetes.io/tls, and of the
// ConfigMap kube-root-ca.crt.
const (
	Dir      = "/etc/hotseat"
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	CAFile   = "ca.crt" // those that may sign a client's certificate, any number
)

// ConfigMap is the name of the ConfigMap with CAFile that the controller keeps in
// each namespace that has a LauncherConfig or a requester. A requester takes orders from the
// controller alone if the container of its program mounts it at Dir.
const ConfigMap = "hotseat-ca"

// LauncherName is the name in the certificate of the launchers of a
// LauncherConfig, and of the programs beside them.
func LauncherName(namespace, config string) string {
	return config + "." + namespace + ".launchers.hotseat.dev"
}

// Server says how a program serves.
type Server struct {
	// CertFile and KeyFile are its certificate. Both empty: one that the program
	// makes for itself, and that nobody has signed.
	CertFile, KeyFile string
	// ClientCAFile has the certificates of those that may sign a client's. Empty:
	// clients are not asked for one.
	ClientCAFile string
}

// Config is that of a server of HTTP/1.1. The files are read again for each
// connection, so that what is renewed on disk counts at once; while one cannot
// be read, nobody gets through. The error names a file that cannot be used now.
//
// A client's certificate that is not signed as it should be, or has ended, ends
// the connection. A client without one gets through to the handler, which asks
// [Shown]: probes of Kubernetes have none.
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
		// Tickets would let somebody in whose certificate counts no more.
		c := &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*certificate},
		}
		if s.ClientCAFile != "" {
			c.ClientAuth = tls.VerifyClientCertIfGiven
			c.ClientCAs, err = ReadPool(s.ClientCAFile)
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

// Shown says that a request came from somebody who has shown a certificate that
// the server's ClientCAFile vouches for.
func Shown(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// ErrNotShown is why somebody who has shown none is refused.
var ErrNotShown = errors.New("orders are taken from those alone who show a client certificate that the file of --client-ca vouches for")

// ownLife is longer than any process.
const ownLife = 100 * 365 * 24 * time.Hour

// makeOwn makes a certificate that nobody has signed.
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
