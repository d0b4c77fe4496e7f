package modelsource

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// refusingServer notes what it is shown, and lets nobody read.
type refusingServer struct {
	mu    sync.Mutex
	shown string
}

func (s *refusingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user, password, _ := r.BasicAuth()
	s.shown += strings.Join([]string{r.URL.String(), r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token"), user, password}, " ") + "\n"
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusForbidden)
}

func (s *refusingServer) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := s.shown
	s.shown = ""
	return shown
}

func TestGivenCredentialsAreShownAndNoneOfTheMachinesOwn(t *testing.T) {
	told := &refusingServer{}
	server := serve(t, told.ServeHTTP)
	theirs(t, server.URL)
	host := strings.TrimPrefix(server.URL, "http://")
	for name, value := range map[string]string{"AWS_PROFILE": "ours", "AWS_SESSION_TOKEN": "hidden", "AZURE_STORAGE_KEY": "aGlkZGVu", "HF_TOKEN": "hidden"} {
		t.Setenv(name, value)
	}
	for name, c := range map[string]struct {
		uri   string
		given fetchapi.Credentials
		shows []string
	}{
		"hub":                 {"hf://org/m", fetchapi.Credentials{"HF_TOKEN": "theirs"}, []string{"Bearer theirs"}},
		"S3":                  {"s3://models/m", fetchapi.Credentials{"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "session", "AWS_REGION": "eu-west-1"}, []string{"Credential=theirs/", "/eu-west-1/", " session "}},
		"S3 without a token":  {"s3://models/m", fetchapi.Credentials{"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "s"}, []string{"Credential=theirs/"}},
		"Azure, a key":        {"azblob://models/m", fetchapi.Credentials{"AZURE_STORAGE_KEY": "dGhlaXJz", "AZURE_STORAGE_ACCOUNT": "theirs"}, []string{"/theirs/models", "SharedKey theirs:"}},
		"Azure, a signature":  {"azblob://models/m", fetchapi.Credentials{"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=theirs"}, []string{"/account/models", "sig=theirs"}},
		"a registry's login":  {"oci://" + host + "/models/m:v1", fetchapi.Credentials{"DOCKER_AUTH_CONFIG": `{"auths": {"` + host + `": {"auth": "dXM6dGhlaXJz"}}}`}, []string{"us theirs"}},
		"a registry, in full": {"oci://" + host + "/models/m:v1", fetchapi.Credentials{"DOCKER_AUTH_CONFIG": `{"auths": {"https://` + host + `/v1/": {"username": "us", "password": "theirs"}}}`}, []string{"us theirs"}},
	} {
		given, err := c.given.For(c.uri)
		require.NoError(t, err, name)
		s := source(t, c.uri, Options{Stall: options.Stall, HubEndpoint: server.URL, Credentials: given})
		_, err = s.Resolve(t.Context())
		require.Error(t, err, name)
		assert.Equal(t, fetchapi.ReasonAccessDenied, reasonOf(t, err), "%s: %v", name, err)
		assert.Contains(t, err.Error(), "the given credentials may not read it", name)
		shown := told.seen()
		for _, text := range c.shows {
			assert.Contains(t, shown, text, name)
		}
		for _, secret := range []string{"hidden", "Credential=ours", "SharedKey account"} {
			assert.NotContains(t, shown+err.Error(), secret, name)
		}
		assert.NotContains(t, err.Error(), "sig=", name)
	}
}

func TestGivenCredentialsOfGoogleAreAKeyAndNotAFile(t *testing.T) {
	told := &refusingServer{}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token": "theirs", "token_type": "Bearer", "expires_in": 3600}`)
			return
		}
		told.ServeHTTP(w, r)
	})
	theirs(t, server.URL)
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "reader@project", "token_uri": server.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	require.NoError(t, err)
	calls, err := gcsCalls(t.Context(), newNoting(options.Stall), fetchapi.Credentials{"GOOGLE_APPLICATION_CREDENTIALS_JSON": string(account)})
	require.NoError(t, err)
	resp, err := calls.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, told.seen(), "Bearer theirs")

	calls, err = gcsCalls(t.Context(), newNoting(options.Stall), fetchapi.Credentials{"GOOGLE_APPLICATION_CREDENTIALS_JSON": `{"type": "service_account", "private_key": "hidden", "token_uri": "` + server.URL + `/token"}`})
	require.NoError(t, err, "the key is read when it is used")
	resp, err = calls.Get(server.URL)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hidden")
}

func TestALoginForDockersOwnRegistryIsFoundByAllItsNames(t *testing.T) {
	for _, noted := range []string{"https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"} {
		given := fetchapi.Credentials{"DOCKER_AUTH_CONFIG": `{"auths": {"` + noted + `": {"username": "us", "password": "theirs"}}}`}
		for _, name := range []string{"docker.io", "registry-1.docker.io"} {
			s, err := newArtifact("oci://"+name+"/org/m:v1", Options{Credentials: given})
			require.NoError(t, err, "%s by %s", name, noted)
			repo := s.(*artifact).repo
			login, err := repo.Client.(*auth.Client).Credential(t.Context(), repo.Reference.Host())
			require.NoError(t, err)
			assert.Equal(t, auth.Credential{Username: "us", Password: "theirs"}, login, "%s by %s", name, noted)
		}
	}
	_, err := newArtifact("oci://docker.io/org/m:v1", Options{Credentials: fetchapi.Credentials{"DOCKER_AUTH_CONFIG": `{"auths": {"ghcr.io": {"username": "us", "password": "theirs"}}}`}})
	assert.ErrorContains(t, err, "has no credential for docker.io")
}
