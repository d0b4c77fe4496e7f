package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keys are the certificates and tokens of a cluster, made anew for each.
type keys struct {
	dir    string
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey
	tokens map[string]string // by user
}

// Users of the control plane; nodes have "system:node:NAME".
const (
	userAdmin             = "admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	userProxy             = "system:kube-proxy"
	userRouter            = "kube-router"
)

// newKeys makes everything that the parts of a cluster know each other by.
func newKeys(dir string, nodes int) (*keys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of keys: %w", err)
	}
	k := &keys{dir: dir, tokens: map[string]string{}}
	if err := k.makeCA(); err != nil {
		return nil, err
	}
	if err := k.certificate("apiserver", pkix.Name{CommonName: "kube-apiserver"}, control, apiService, "127.0.0.1"); err != nil {
		return nil, err
	}
	if err := k.certificate("kubelet-client", pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	if err := k.serviceAccountKey(); err != nil {
		return nil, err
	}
	return k, k.writeTokens(nodes)
}

func (k *keys) file(name string) string { return filepath.Join(k.dir, name) }

func (k *keys) makeCA() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hotseat test cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("cannot make the cluster's CA: %w", err)
	}
	if k.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	k.caKey = key
	return writePEM(k.file("ca.crt"), "CERTIFICATE", der)
}

// certificate makes NAME.crt and NAME.key, for a server when it has addresses
// and for a client otherwise.
func (k *keys) certificate(name string, subject pkix.Name, addresses ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject,
		NotBefore: k.ca.NotBefore, NotAfter: k.ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(addresses) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"}
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, k.ca, key.Public(), k.caKey)
	if err != nil {
		return fmt.Errorf("cannot make the certificate %s: %w", name, err)
	}
	if err := writePEM(k.file(name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(k.file(name+".key"), key)
}

func (k *keys) serviceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(k.file("service-account.key"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("cannot write a key: %w", err)
	}
	return nil
}

// writeTokens makes a bearer token for each user, in the form of the API
// server's --token-auth-file.
func (k *keys) writeTokens(nodes int) error {
	groups := map[string]string{userAdmin: "system:masters", userControllerManager: "", userScheduler: "", userProxy: "", userRouter: "system:masters"}
	for number := 1; number <= nodes; number++ {
		groups["system:node:"+NodeName(number)] = "system:nodes"
	}
	var lines strings.Builder
	for user, group := range groups {
		secret := make([]byte, 16)
		_, _ = rand.Read(secret) // never fails
		k.tokens[user] = hex.EncodeToString(secret)
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", k.tokens[user], user, user, group)
	}
	if err := os.WriteFile(k.file("tokens.csv"), []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("cannot write the tokens: %w", err)
	}
	return nil
}

// kubeconfig writes how a user reaches the API server.
func (k *keys) kubeconfig(path, server, user string) error {
	ca, err := os.ReadFile(k.file("ca.crt"))
	if err != nil {
		return err
	}
	data := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "hotseat",
		"clusters": []any{map[string]any{"name": "hotseat", "cluster": map[string]any{"server": server, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": user, "user": map[string]any{"token": k.tokens[user]}}},
		"contexts": []any{map[string]any{"name": "hotseat", "context": map[string]any{"cluster": "hotseat", "user": user}}},
	}
	return writeJSON(path, data) // YAML has JSON in it
}
