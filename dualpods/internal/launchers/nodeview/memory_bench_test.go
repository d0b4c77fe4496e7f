package nodeview

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// hostsEnv makes the test binary serve a launcher's API, so that its memory is not counted
// as the watcher's.
const hostsEnv = "NODEVIEW_BENCH_HOST"

// benchModels is how many models each launcher has.
const benchModels = 100

const benchName = "vllm.ns.launchers.hotseat.dev"

// serveBench serves the API, by plain HTTP or by TLS, until the standard input ends.
func serveBench(how string) {
	h := &host{instances: nil, news: make(chan struct{}), models: map[string]launcherapi.Model{}}
	for n := range benchModels {
		id, published := fmt.Sprintf("%032x", n), time.Now()
		h.models[id] = launcherapi.Model{
			ID: id, URI: fmt.Sprintf("hf://organisation/model-%d", n), Ref: "main", Revision: fmt.Sprintf("%040x", n), State: launcherapi.ModelReady,
			Path: "/var/lib/hotseat/models/models/" + id + "/files", Refs: []string{"main"},
			WantedBy: []string{fmt.Sprintf("ClusterModelCache/model-%d/%036d", n, n)}, Published: &published, LastUsed: &published,
		}
	}
	h.server = httptest.NewUnstartedServer(h.routes())
	h.server.Config.IdleTimeout = time.Second // of connections that no call uses
	if how == "tls" {
		h.server.TLS = &tls.Config{Certificates: []tls.Certificate{benchCertificate()}, ClientAuth: tls.RequireAnyClientCert}
		h.server.StartTLS()
	} else {
		h.server.Start()
	}
	_ = json.NewEncoder(os.Stdout).Encode(h.server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func benchCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{benchName}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// BenchmarkMemoryOfStreams reports the memory that the controller needs for each watched
// launcher: heap and stacks after a collection.
func BenchmarkMemoryOfStreams(b *testing.B) {
	const launchers = 1000
	for _, how := range []string{"plain", "tls"} {
		for _, models := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/models=%v", how, models), func(b *testing.B) {
				exe, err := os.Executable()
				require.NoError(b, err)
				server := exec.Command(exe)
				server.Env, server.Stderr = append(os.Environ(), hostsEnv+"="+how), os.Stderr
				in, err := server.StdinPipe()
				require.NoError(b, err)
				out, err := server.StdoutPipe()
				require.NoError(b, err)
				require.NoError(b, server.Start())
				var url string
				require.NoError(b, json.NewDecoder(bufio.NewReader(out)).Decode(&url))
				mine := benchCertificate()
				s := New(Options{
					Heartbeat: time.Minute, Changed: func(string) {},
					TLS: func(context.Context, string) (*tls.Config, error) {
						return &tls.Config{InsecureSkipVerify: true, ServerName: benchName, Certificates: []tls.Certificate{mine}}, nil //nolint:gosec // its peer is this test's own
					},
				})
				_, address, _ := strings.Cut(url, "://")
				target := Target{Address: address, Access: Access{Token: rightToken}, Models: models}
				if how == "tls" {
					target.Name = benchName
				}
				before, streams := held(), 1
				if models {
					streams = 2
				}
				others := runtime.NumGoroutine()
				for n := range launchers {
					s.Watch(fmt.Sprint(n), target)
				}
				told := func(n int) bool {
					view := s.View(fmt.Sprint(n))
					return view.Connected && (!models || view.Models != nil)
				}
				for n := 0; n < launchers || runtime.NumGoroutine() > others+streams*launchers; {
					if n < launchers && told(n) {
						n++
						continue
					}
					<-time.After(10 * time.Millisecond)
				}
				for b.Loop() {
				}
				b.ReportMetric(float64(held()-before)/launchers/1024, "KiB/launcher")
				s.Close()
				require.NoError(b, in.Close())
				require.NoError(b, server.Wait())
			})
		}
	}
}

// held returns the memory in use after garbage collections free no more. Each collection
// halves stacks that are at least four times as large as needed.
func held() int64 {
	var m runtime.MemStats
	for least := int64(math.MaxInt64); ; {
		runtime.GC()
		runtime.ReadMemStats(&m)
		now := int64(m.HeapInuse + m.StackInuse)
		if now >= least {
			return least
		}
		least = now
	}
}
