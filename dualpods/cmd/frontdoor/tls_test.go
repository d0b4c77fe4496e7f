package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/spec/demandapi"
	"hotseat.dev/hotseat/spec/externalscaler"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
)

func TestClientsSpeakHTTPSWithACertificateThatIsRenewed(t *testing.T) {
	first, second := mtlstest.New(t, "first"), mtlstest.New(t, "second")
	dir := t.TempDir()
	cert, key := mtlstest.Write(t, dir, first.Server(t, "models.example.com"))
	api := newFakeAPI(t)
	p := start(t, api, "--tls-cert="+cert, "--tls-key="+key)
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	list := func(ca *mtlstest.CA) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "models.example.com", RootCAs: ca.Pool()}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.clients.Addr().String()+"/v1/models", nil)
		require.NoError(t, err)
		got, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = got.Body.Close() }()
		assert.Equal(t, http.StatusOK, got.StatusCode)
		return nil
	}
	require.NoError(t, list(first))
	mtlstest.Write(t, dir, second.Server(t, "models.example.com"))
	require.NoError(t, list(second), "a renewed one counts at once")
	require.Error(t, list(first))
	code, _ := p.get(p.clients.Addr(), "/v1/models")
	assert.Equal(t, http.StatusBadRequest, code, "HTTP is refused")
}

func TestCertificateThatCannotBeReadIsNamed(t *testing.T) {
	s, err := parse([]string{"--namespace=team", "--own-namespace=system", "--listen=127.0.0.1:0", "--demand-listen=127.0.0.1:0", "--probes-listen=127.0.0.1:0", "--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:1"), "--tls-cert=/none.crt", "--tls-key=/none.key"})
	require.NoError(t, err)
	_, err = open(s, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "cannot use the certificate /none.crt")
}

func TestOnlyTheControllerAndFrontDoorsHearTheDemand(t *testing.T) {
	ca := mtlstest.New(t, "ca")
	dir := t.TempDir()
	mtlstest.Write(t, dir, ca.Server(t, mtls.FrontDoorName("system")))
	mtlstest.WriteCAs(t, filepath.Join(dir, mtls.CAFile), ca)
	p := start(t, newFakeAPI(t), "--demand-tls="+dir)
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	hear := func(by func(context.Context) (*tls.Config, error)) (report demandapi.Report, err error) {
		transport := demand.Transport(by)
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.counts.Addr().String()+demandapi.Path, nil)
		require.NoError(t, err)
		got, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return report, err
		}
		defer func() { _ = got.Body.Close() }()
		return report, json.NewDecoder(got.Body).Decode(&report)
	}
	controller := &tls.Config{ServerName: mtls.FrontDoorName("system"), RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Client(t, time.Hour)}}
	report, err := hear(func(context.Context) (*tls.Config, error) { return controller, nil })
	require.NoError(t, err)
	assert.True(t, report.Whole)
	report, err = hear(func(context.Context) (*tls.Config, error) { return p.peers().Call() })
	require.NoError(t, err, "another front door")
	assert.True(t, report.Whole)
	nobody := controller.Clone()
	nobody.Certificates = nil
	_, err = hear(func(context.Context) (*tls.Config, error) { return nobody, nil })
	require.ErrorContains(t, err, "remote error: tls:")
	code, _ := p.get(p.counts.Addr(), demandapi.Path)
	assert.Equal(t, http.StatusBadRequest, code, "HTTP is refused")
}

func TestKEDAShowsACertificateOfTheAuthorityThatIsNamed(t *testing.T) {
	ca, other := mtlstest.New(t, "ca"), mtlstest.New(t, "other")
	dir := t.TempDir()
	mtlstest.Write(t, dir, ca.Server(t, "front-door.system"))
	mtlstest.WriteCAs(t, filepath.Join(dir, mtls.CAFile), ca)
	p := start(t, newFakeAPI(t), "--scaler-listen=127.0.0.1:0", "--scaler-tls="+dir)
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	ask := func(by credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(p.forKEDA.Addr().String(), grpc.WithTransportCredentials(by))
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		_, err = externalscaler.NewExternalScalerClient(conn).IsActive(t.Context(), &externalscaler.ScaledObjectRef{Namespace: "team", ScalerMetadata: map[string]string{"model": "llama"}})
		return err
	}
	shows := func(certificates ...tls.Certificate) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{ServerName: "front-door.system", RootCAs: ca.Pool(), Certificates: certificates})
	}
	assert.Equal(t, codes.NotFound, status.Code(ask(shows(ca.Client(t, time.Hour)))), "it is heard, and there is no such Model")
	for name, by := range map[string]credentials.TransportCredentials{
		"no certificate": shows(), "one of another authority": shows(other.Client(t, time.Hour)), "no TLS": insecure.NewCredentials(),
	} {
		assert.Equal(t, codes.Unavailable, status.Code(ask(by)), name)
	}
}
