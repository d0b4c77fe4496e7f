package browser

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyNamesOfThisMachineAreTakenAtItsLoopbackAddress(t *testing.T) {
	hostname, err := os.Hostname()
	require.NoError(t, err)
	named := func(host, local string) error {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		return CheckName(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(local)})))
	}
	for _, host := range []string{"localhost", "LOCALHOST:8001", "127.0.0.1:8001", "[::1]", "10.1.2.3", hostname, ""} {
		assert.NoError(t, named(host, "127.0.0.1"), host)
	}
	for _, host := range []string{"elsewhere.example", "localhost.elsewhere.example:8001", "127.0.0.1.elsewhere.example"} {
		assert.ErrorContains(t, named(host, "::1"), host[:9])
		assert.NoError(t, named(host, "10.1.2.3"), host)
	}
}

func TestWhatAPageOfAnotherSiteChangesIsRefused(t *testing.T) {
	for method, refused := range map[string]bool{http.MethodPost: true, http.MethodGet: false} {
		r := httptest.NewRequest(method, "/", nil)
		assert.NoError(t, CheckSite(r))
		r.Header.Set("Origin", "https://elsewhere.example")
		assert.Equal(t, refused, CheckSite(r) != nil, method)
	}
}
