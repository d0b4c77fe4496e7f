package mtls_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "vllm.ns.launchers.hotseat.dev"

// serve answers who has shown a certificate, until the test ends.
func serve(t *testing.T, server mtls.Server) (address string) {
	t.Helper()
	config, err := server.Config()
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mtls.Shown(r) {
			w.WriteHeader(http.StatusForbidden)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return l.Addr().String()
}

// client calls with these certificates, of which the first whose authority the
// server names is shown.
func client(t *testing.T, roots *x509.CertPool, certificates ...tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, Certificates: certificates}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func status(c *http.Client, url string) (int, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// show shows a certificate whatever the server asks for.
func show(c *http.Client, certificate tls.Certificate) *http.Client {
	c.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	return c
}

// files are those of a server, in a folder of the test's.
func files(t *testing.T, server *mtlstest.CA, clients ...*mtlstest.CA) mtls.Server {
	t.Helper()
	dir := t.TempDir()
	cert, key := mtlstest.Write(t, dir, server.Server(t, name))
	mtlstest.WriteCAs(t, filepath.Join(dir, mtls.CAFile), clients...)
	return mtls.Server{CertFile: cert, KeyFile: key, ClientCAFile: filepath.Join(dir, mtls.CAFile)}
}

func TestOnlyWhoShowsACertificateOfTheAuthorityIsKnown(t *testing.T) {
	ours, theirs := mtlstest.New(t, "ours"), mtlstest.New(t, "theirs")
	url := "https://" + serve(t, files(t, ours, ours))
	got, err := status(client(t, ours.Pool(), ours.Client(t, time.Hour)), url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, got)
	got, err = status(client(t, ours.Pool()), url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusForbidden, got, "none, as a probe")
	for what, wrong := range map[string]tls.Certificate{
		"another authority's":    theirs.Client(t, time.Hour),
		"one that has ended":     ours.Client(t, -time.Second),
		"that of a server":       ours.Server(t, name),
		"one of the same name's": mtlstest.New(t, "ours").Client(t, time.Hour),
	} {
		_, err := status(show(client(t, ours.Pool()), wrong), url)
		assert.ErrorContains(t, err, "remote error: tls:", what)
	}
	_, err = status(client(t, theirs.Pool(), ours.Client(t, time.Hour)), url)
	assert.ErrorContains(t, err, "unknown authority", "the client knows the server, too")
	plain, err := status(client(t, nil), "http"+url[len("https"):])
	assert.True(t, err != nil || plain == http.StatusBadRequest, "plain HTTP: %d", plain) // the connection is cut, before or after the answer is read
}

func TestAnAuthorityIsFollowedByAnotherWhileConnectionsLive(t *testing.T) {
	before, after := mtlstest.New(t, "before"), mtlstest.New(t, "after")
	server := files(t, before, before)
	url := "https://" + serve(t, server)
	old := client(t, before.Pool(), before.Client(t, time.Hour))
	ok := func(c *http.Client, what string) {
		t.Helper()
		got, err := status(c, url)
		require.NoError(t, err, what)
		assert.Equal(t, http.StatusOK, got, what)
	}
	ok(old, "the first")
	mtlstest.WriteCAs(t, server.ClientCAFile, after, before)
	both := after.Pool()
	both.AddCert(before.Certificate)
	ok(client(t, both, after.Client(t, time.Hour), before.Client(t, time.Hour)), "the next authority is known")
	ok(client(t, both, before.Client(t, time.Hour)), "and so is the one before")
	dir := filepath.Dir(server.CertFile)
	mtlstest.Write(t, dir, after.Server(t, name))
	mtlstest.WriteCAs(t, server.ClientCAFile, after)
	ok(old, "on the connection that was made before")
	ok(client(t, after.Pool(), after.Client(t, time.Hour)), "the next")
	_, err := status(show(client(t, both), before.Client(t, time.Hour)), url)
	assert.ErrorContains(t, err, "remote error: tls:", "the one before is trusted no more")
}

func TestACertificateThatIsRenewedOnDiskIsShownAtOnce(t *testing.T) {
	ca := mtlstest.New(t, "ca")
	server := files(t, ca, ca)
	address := serve(t, server)
	serial := func() string {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool(), ServerName: name})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	assert.Equal(t, first, serial())
	next := ca.Server(t, name)
	mtlstest.Write(t, filepath.Dir(server.CertFile), next)
	assert.Equal(t, next.Leaf.SerialNumber.String(), serial())
	require.NoError(t, os.Remove(server.ClientCAFile))
	_, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool(), ServerName: name})
	require.Error(t, err, "nobody gets through while a file is away")
	mtlstest.WriteCAs(t, server.ClientCAFile, ca)
	assert.Equal(t, next.Leaf.SerialNumber.String(), serial())
}

func TestFilesThatCannotBeUsedAreNamedAtTheStart(t *testing.T) {
	ca := mtlstest.New(t, "ca")
	server := files(t, ca, ca)
	other := filepath.Join(t.TempDir(), "other")
	for what, s := range map[string]mtls.Server{
		"no certificate":          {CertFile: other, KeyFile: server.KeyFile},
		"a key of something else": {CertFile: server.CertFile, KeyFile: other},
		"no authorities":          {ClientCAFile: other},
	} {
		_, err := s.Config()
		assert.ErrorContains(t, err, other, what)
	}
	require.NoError(t, os.WriteFile(other, []byte("no certificate"), 0o600))
	_, err := mtls.Server{ClientCAFile: other}.Config()
	assert.ErrorContains(t, err, "cannot use "+other+": there is no certificate in PEM in it")
}

func TestAServerWithoutACertificateMakesOne(t *testing.T) {
	ca := mtlstest.New(t, "ca")
	server := files(t, ca, ca)
	server.CertFile, server.KeyFile = "", ""
	url := "https://" + serve(t, server)
	c := client(t, nil, ca.Client(t, time.Hour))
	c.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	got, err := status(c, url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, got)
}

func TestServersThatCallEachOtherKnowTheirClientsAndPeers(t *testing.T) {
	ours, theirs := mtlstest.New(t, "ours"), mtlstest.New(t, "theirs")
	server := files(t, ours, ours)
	server.Peer = name
	config, err := server.Config()
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.NotFoundHandler()}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	url := "https://" + l.Addr().String()
	got, err := status(client(t, ours.Pool(), ours.Client(t, time.Hour)), url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, got)
	call, err := server.Call()
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: call}
	t.Cleanup(transport.CloseIdleConnections)
	got, err = status(&http.Client{Transport: transport}, url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, got)
	_, err = status(client(t, ours.Pool()), url)
	assert.ErrorContains(t, err, "remote error: tls:", "none")
	for what, wrong := range map[string]tls.Certificate{
		"that of another server":           ours.Server(t, "other.launchers.hotseat.dev"),
		"one of that name, of a stranger":  theirs.Server(t, name),
		"another authority's":              theirs.Client(t, time.Hour),
		"that of a client, but it is over": ours.Client(t, -time.Second),
	} {
		_, err := status(show(client(t, ours.Pool()), wrong), url)
		assert.ErrorContains(t, err, "remote error: tls:", what)
	}
}
