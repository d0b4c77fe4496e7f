// Package mtlstest makes authorities and certificates for tests.
package mtlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA is a certificate authority.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority of that name.
func New(t *testing.T, name string) *CA {
	t.Helper()
	ca := &CA{}
	made := ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Hour)
	ca.Certificate, ca.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	return ca
}

// sign makes a certificate that ends after life, by this authority or, for the
// authority itself, by its own key.
func (ca *CA) sign(t *testing.T, c *x509.Certificate, life time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	parent, by := ca.Certificate, ca.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Client makes the certificate of a client, which ends after life.
func (ca *CA) Client(t *testing.T, life time.Duration) tls.Certificate {
	t.Helper()
	return ca.sign(t, &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, life)
}

// Server makes the certificate of a server of that name, and of 127.0.0.1.
func (ca *CA) Server(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return ca.sign(t, &x509.Certificate{
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, time.Hour)
}

// Pool trusts this authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	return pool
}

// WriteCAs writes the certificates of authorities to a file.
func WriteCAs(t *testing.T, path string, all ...*CA) {
	t.Helper()
	var text []byte
	for _, ca := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate.Raw})...)
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// Write writes a certificate and its key to tls.crt and tls.key in a folder.
func Write(t *testing.T, dir string, c tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	return cert, key
}
