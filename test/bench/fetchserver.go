package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// fileServerEnv makes this program a server of files, and a hub, by HTTPS: "LISTEN
// FOLDER", with certificate and key beside the folder. It ends when its standard input does.
const fileServerEnv = "HOTSEAT_BENCH_FILES"

func serveFiles(told string) {
	listen, folder, _ := strings.Cut(told, " ")
	server := &http.Server{ReadHeaderTimeout: patience, Handler: hub{folder}.handler(contentHost(listen)), ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end of it is what is waited for
		_ = server.Close()                    // the process ends with it
	}()
	var group errgroup.Group
	for _, addr := range []string{listen, contentHost(listen)} {
		group.Go(func() error {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			return server.ServeTLS(l, certificate(folder), key(folder))
		})
	}
	if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintf(os.Stderr, "server of files: %v\n", err)
		os.Exit(1)
	}
}

// contentHost is another host of this machine, from which the hub has files sent.
func contentHost(listen string) string { return strings.Replace(listen, "127.0.0.1", "127.0.0.2", 1) }

func certificate(folder string) string { return folder + ".crt" }

func key(folder string) string { return folder + ".key" }

// makeCertificate makes one for this machine, which signs itself.
func makeCertificate(folder string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	what := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hotseat bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, what, what, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certificate(folder), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600),
		os.WriteFile(key(folder), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}

// site is a server that models are fetched from.
type site struct {
	url  string
	stop func() error
}

// serveHTTPS serves a folder, in a process of its own.
func (b *bench) serveHTTPS(folder string) (*site, error) {
	addr, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	if err := makeCertificate(folder); err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fileServerEnv+"="+addr+" "+folder)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	p, err := harness.Start(cmd, os.Stderr)
	if err != nil {
		return nil, err
	}
	s := &site{url: "https://" + addr, stop: func() error { return errors.Join(stdin.Close(), p.Wait(patience)) }}
	if err := b.listening(p, addr); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// The credentials of the S3 gateway.
const s3User, s3Secret = "ours", "benchsecret"

// serveS3 serves a folder as the bucket "models", by versitygw.
func (b *bench) serveS3(folder string) (*site, error) {
	program := filepath.Join(b.clients, "versitygw")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("there is no S3 server: `make bench-clients` builds it: %w", err)
	}
	root, side := filepath.Join(b.dir, "s3"), filepath.Join(b.dir, "sidecar")
	if err := errors.Join(os.MkdirAll(root, 0o755), os.MkdirAll(side, 0o755)); err != nil {
		return nil, err
	}
	if err := os.Rename(folder, filepath.Join(root, "models")); err != nil {
		return nil, err
	}
	addr, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.dir, "s3.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--port", addr, "posix", "--sidecar", side, root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3User, "ROOT_SECRET_KEY="+s3Secret)
	p, err := harness.Start(cmd, log)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s := &site{url: "http://" + addr, stop: func() error { p.Kill(); return log.Close() }}
	if err := b.listening(p, addr); err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, text), s.stop())
	}
	return s, nil
}

// listening waits until a server listens.
func (b *bench) listening(p *harness.Program, addr string) error {
	return eventually(b.ctx, "a server listens", func() (bool, error) {
		c, err := (&net.Dialer{}).DialContext(b.ctx, "tcp", addr)
		if p.HasEnded() {
			return false, errors.New("it has ended")
		}
		if err != nil {
			return false, nil //nolint:nilerr // it does not yet
		}
		return true, c.Close()
	})
}
