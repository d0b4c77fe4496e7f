package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func tokenFile(t *testing.T, content string) (string, *api.TokenFile) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	token, err := api.OpenTokenFile(path)
	require.NoError(t, err)
	return path, token
}

func TestWithoutTheTokenOnlyHealthIsAnswered(t *testing.T) {
	_, token := tokenFile(t, "s3cret\n")
	r := newRig(t, func(o *api.Options) { o.Access = token })
	for _, header := range [][]string{
		{}, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer s3cre"}, {"Authorization", "Bearer s3cret2"},
		{"Authorization", "Bearer"}, {"Authorization", "s3cret"}, {"Authorization", "Basic s3cret"}, {"X-Api-Key", "s3cret"},
	} {
		for method, path := range map[string]string{
			http.MethodGet: "/", http.MethodPost: instancesPath, http.MethodPut: instancesPath + "/a", http.MethodDelete: instancesPath,
			http.MethodOptions: instancesPath, http.MethodHead: "/docs", http.MethodPatch: "/health",
		} {
			got := r.do(t, method, path, "", header...)
			assert.Equal(t, http.StatusUnauthorized, got.status, "%s %s %v", method, path, header)
			assert.Equal(t, `Bearer realm="hotseat launcher"`, got.header.Get("WWW-Authenticate"))
			if method != http.MethodHead {
				assert.Equal(t, launcherapi.CodeUnauthorized, got.problem(t).Code)
				assert.NotContains(t, got.body, "s3cret")
			}
		}
		for _, path := range []string{"/metrics", "/openapi.json", "/nothing", watchPath, "/health/", "/readyz/../metrics"} {
			assert.Equal(t, http.StatusUnauthorized, r.do(t, http.MethodGet, path, "", header...).status, path)
		}
	}
	assert.Empty(t, r.instances.Record())
	for _, path := range []string{"/health", "/readyz"} {
		assert.Equal(t, http.StatusOK, r.do(t, http.MethodGet, path, "").status)
		assert.Equal(t, http.StatusOK, r.do(t, http.MethodHead, path, "").status)
	}
	for _, scheme := range []string{"Bearer ", "bearer ", "Bearer  "} {
		assert.Equal(t, http.StatusOK, r.do(t, http.MethodGet, instancesPath, "", "Authorization", scheme+"s3cret").status)
	}
}

func TestMetricsCanBeOpenToAll(t *testing.T) {
	_, token := tokenFile(t, "s3cret")
	r := newRig(t, func(o *api.Options) { o.Access, o.PublicMetrics = token, true })
	assert.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/metrics", "").status)
	assert.Equal(t, http.StatusUnauthorized, r.do(t, http.MethodGet, "/", "").status)
}

func TestATokenThatIsRenewedOnDiskCountsAtOnce(t *testing.T) {
	path, token := tokenFile(t, "old")
	r := newRig(t, func(o *api.Options) { o.Access = token })
	try := func(token string) int {
		return r.do(t, http.MethodGet, "/", "", "Authorization", "Bearer "+token).status
	}
	require.Equal(t, http.StatusOK, try("old"))
	require.NoError(t, os.WriteFile(path, []byte("new"), 0o600)) // of the same size
	assert.Equal(t, http.StatusUnauthorized, try("old"))
	assert.Equal(t, http.StatusOK, try("new"))
	for _, ruin := range []func() error{
		func() error { return os.WriteFile(path, []byte(" \n"), 0o600) },
		func() error { return os.Remove(path) },
	} {
		require.NoError(t, ruin())
		assert.Equal(t, http.StatusServiceUnavailable, try("new"))
		assert.Equal(t, http.StatusServiceUnavailable, try(""))
	}
	require.NoError(t, os.WriteFile(path, []byte("new"), 0o600))
	assert.Equal(t, http.StatusOK, try("new"))
}

func TestATokenFileWithoutATokenIsRefusedAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	_, err := api.OpenTokenFile(path)
	require.ErrorContains(t, err, path)
	require.NoError(t, os.WriteFile(path, []byte("\n"), 0o600))
	_, err = api.OpenTokenFile(path)
	require.ErrorContains(t, err, "empty")
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
		got := r.do(t, http.MethodPost, instancesPath+"/a/sleep", "", header...)
		assert.Equal(t, http.StatusForbidden, got.status)
		assert.Equal(t, launcherapi.CodeForbidden, got.problem(t).Code)
	}
	got := r.do(t, http.MethodPost, instancesPath+"/a/sleep", "", "Sec-Fetch-Site", "same-origin")
	assert.Equal(t, http.StatusOK, got.status)
}
