package requester

import (
	"crypto/tls"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/mtls/mtlstest"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// startTrusting is a requester that takes orders from clients of an authority.
func startTrusting(t *testing.T) (s *running, ca *mtlstest.CA, file string) {
	t.Helper()
	ca, file = mtlstest.New(t, "ca"), filepath.Join(t.TempDir(), "ca.crt")
	mtlstest.WriteCAs(t, file, ca)
	s = start(t, func(o *Options) { o.ClientCAFile = file })
	return s, ca, file
}

// refusedPlain says that an order by plain HTTP is refused: by an answer, or by the
// end of the connection, which may come first.
func (s *running) refusedPlain(method, path, body string) bool {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience.Wait()}
	req, err := http.NewRequest(method, s.spi+path, strings.NewReader(body))
	require.NoError(s.t, err)
	resp, err := client.Do(req)
	if err != nil {
		return true
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusBadRequest
}

// as calls the SPI by TLS, with a certificate or none.
func (s *running) as(certificate *tls.Certificate, method, path, body string) (status int, text string, err error) {
	s.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if certificate == nil {
			return &tls.Certificate{}, nil
		}
		return certificate, nil
	}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patience.Wait()}
	req, err := http.NewRequest(method, "https://"+s.r.SPIAddr().String()+path, strings.NewReader(body))
	require.NoError(s.t, err)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

func TestARequesterTakesOrdersFromItsControllerAlone(t *testing.T) {
	s, ca, _ := startTrusting(t)
	mine, stolen, ended := ca.Client(t, time.Hour), ca.Server(t, "a launcher"), ca.Client(t, -time.Minute)
	other := mtlstest.New(t, "ca").Client(t, time.Hour)
	for _, order := range []struct{ method, path, body string }{
		{http.MethodPut, requesterapi.PathProxyConfig, `{"address": "127.0.0.1", "port": 1, "serving_port": 2}`},
		{http.MethodDelete, requesterapi.PathProxyConfig + "?binding=x", ""},
		{http.MethodGet, requesterapi.PathProxyConfig, ""},
		{http.MethodPut, requesterapi.PathProxyHold, `{"binding": "x", "serving_port": 2}`},
		{http.MethodPost, requesterapi.PathBecomeReady, ""},
		{http.MethodPost, requesterapi.PathBecomeUnready, ""},
		{http.MethodPost, requesterapi.PathSetLog + "?startPos=0", "a lie"},
		{http.MethodPost, requesterapi.PathReady, ""},
		{http.MethodGet, requesterapi.PathAccelerators, ""},
		{http.MethodGet, requesterapi.PathAcceleratorMemoryUsage, ""},
		{http.MethodGet, "/nothing", ""},
	} {
		what := order.method + " " + order.path
		assert.True(t, s.refusedPlain(order.method, order.path, order.body), "plain %s", what)
		status, text, err := s.as(nil, order.method, order.path, order.body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status, what)
		assert.Contains(t, text, `"code":"forbidden"`)
		for _, wrong := range []tls.Certificate{stolen, ended, other} {
			_, _, err = s.as(&wrong, order.method, order.path, order.body)
			assert.ErrorContains(t, err, "remote error: tls:", what)
		}
	}
	assert.Empty(t, s.log.String())
	status, text, err := s.as(&mine, http.MethodGet, requesterapi.PathAccelerators, "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "GPU-a")
	status, _, err = s.as(&mine, http.MethodPost, requesterapi.PathSetLog+"?startPos=0", "the truth")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "the truth", s.log.String())
}

func TestProbesOfARequesterThatTakesOrdersFromItsControllerNeedNoCertificate(t *testing.T) {
	s, _, _ := startTrusting(t)
	assert.Equal(t, http.StatusServiceUnavailable, s.call(http.MethodGet, s.probes+requesterapi.PathReady, "").status)
	assert.Equal(t, http.StatusOK, s.call(http.MethodGet, s.probes+"/healthz", "").status)
	status, _, err := s.as(nil, http.MethodGet, requesterapi.PathReady, "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status, "at the SPI, too")
}

func TestARequesterWhoseAuthoritiesCannotBeReadDoesNotStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	_, err := New(Options{Host: "127.0.0.1", AcceleratorsFrom: "env", ClientCAFile: file})
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, "--client-ca")
}
