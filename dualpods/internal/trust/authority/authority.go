// Package authority keeps the certificate authority of an installation, by which
// launchers and requesters know the controller, and the controller launchers. It
// is all crypto/x509, and one Secret.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// How long certificates last.
const (
	caLife     = 5 * 365 * 24 * time.Hour
	serverLife = 90 * 24 * time.Hour
	clientLife = 24 * time.Hour
	// backdate is for nodes whose clocks are behind the controller's.
	backdate = time.Hour
	// retireAfter is how long an authority is trusted still after the next one was
	// made. Kubelets bring a file that has changed within two minutes.
	retireAfter = time.Hour
)

// renewal is when a certificate is made anew: when a third of its life is left.
func renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// signer is one authority.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// made is when the authority was.
func (s *signer) made() time.Time { return s.certificate.NotBefore.Add(backdate) }

// Authorities are those that are trusted, the newest first, which signs. They are
// never changed.
type Authorities struct {
	all  []*signer
	cert []byte // PEM
	keys []byte // PEM
}

// parse reads what Authorities have written.
func parse(certificates, keys []byte) (*Authorities, error) {
	var all []*signer
	for len(bytes.TrimSpace(certificates)) > 0 {
		var c, k *pem.Block
		c, certificates = pem.Decode(certificates)
		k, keys = pem.Decode(keys)
		if c == nil || k == nil {
			return nil, errors.New("it does not have a key in PEM for each certificate")
		}
		certificate, err := x509.ParseCertificate(c.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read a certificate: %w", err)
		}
		key, err := x509.ParseECPrivateKey(k.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read a key: %w", err)
		}
		if !certificate.IsCA || !key.PublicKey.Equal(certificate.PublicKey) {
			return nil, fmt.Errorf("%s is no authority with that key", certificate.Subject.CommonName)
		}
		all = append(all, &signer{certificate, key})
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return of(all)
}

// of makes Authorities of some.
func of(all []*signer) (*Authorities, error) {
	a := &Authorities{all: all}
	for _, s := range all {
		der, err := x509.MarshalECPrivateKey(s.key)
		if err != nil {
			return nil, fmt.Errorf("cannot write a key: %w", err)
		}
		a.cert = append(a.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw})...)
		a.keys = append(a.keys, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	}
	return a, nil
}

// Certificates are those of all, in PEM: what launchers and requesters trust.
func (a *Authorities) Certificates() []byte { return a.cert }

func (a *Authorities) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, s := range a.all {
		pool.AddCert(s.certificate)
	}
	return pool
}

// Next gives what should be there now, and when to look again: an authority of
// which a third of its life is left is followed by another, as is one that
// somebody asks to be; one that was followed is retired. Where nothing is to
// change it gives what was there; nil: nothing was.
func Next(there *Authorities, asked bool, now time.Time) (*Authorities, time.Duration, error) {
	var all []*signer
	if there != nil {
		all = there.all
	}
	if len(all) == 0 || asked || !now.Before(renewal(all[0].certificate)) {
		next, err := newSigner(now)
		if err != nil {
			return nil, 0, err
		}
		all = append([]*signer{next}, all...)
	}
	var kept []*signer
	again := renewal(all[0].certificate)
	for n, s := range all {
		if n == 0 {
			kept = append(kept, s)
			continue
		}
		if end := all[n-1].made().Add(retireAfter); now.Before(end) && now.Before(s.certificate.NotAfter) {
			kept = append(kept, s)
			if end.Before(again) {
				again = end
			}
		}
	}
	if there != nil && len(kept) == len(there.all) && kept[0] == there.all[0] {
		return there, again.Sub(now), nil
	}
	made, err := of(kept)
	return made, again.Sub(now), err
}

// newSigner makes an authority. Its name is like no other's: by that a client
// tells which of its certificates a server knows.
func newSigner(now time.Time) (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	template := template("", now, caLife)
	template.Subject.CommonName = "hotseat CA " + template.SerialNumber.Text(16)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make the certificate of an authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return &signer{certificate, key}, err
}

func template(name string, now time.Time, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails: crypto/rand ends the process instead
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
	}
}

// sign makes a certificate with a key of its own.
func (s *signer) sign(t *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if t.NotAfter.After(s.certificate.NotAfter) {
		t.NotAfter = s.certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, s.certificate, key.Public(), s.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// Server makes the certificate of a server of that name, and its key, in PEM. It
// is good for no client.
func (a *Authorities) Server(name string, now time.Time) (certificate, key []byte, err error) {
	made, err := a.all[0].server("hotseat", name, now)
	if err != nil {
		return nil, nil, err
	}
	return inPEM(made)
}

// server makes the certificate of a server of that name, which may be longer than a
// common name may be.
func (s *signer) server(common, name string, now time.Time) (*tls.Certificate, error) {
	t := template(common, now, serverLife)
	t.DNSNames, t.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return s.sign(t)
}

// inPEM writes a certificate that sign has made, and its key.
func inPEM(made *tls.Certificate) (certificate, key []byte, err error) {
	der, err := x509.MarshalECPrivateKey(made.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Leaf.Raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// Good says until when the certificate of a server of that name need not be made
// anew; false where it has to be now, or the key is not its own.
func (a *Authorities) Good(certificate, key []byte, name string, now time.Time) (until time.Time, ok bool) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return time.Time{}, false
	}
	newest := x509.NewCertPool()
	newest.AddCert(a.all[0].certificate)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: newest, CurrentTime: now})
	until = renewal(pair.Leaf)
	return until, err == nil && now.Before(until)
}

// client makes a certificate of who gives orders.
func (s *signer) client(name string, life time.Duration, now time.Time) (*tls.Certificate, error) {
	t := template(name, now, life)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return s.sign(t)
}
