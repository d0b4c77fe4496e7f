//go:build modelservers

package modelsources

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// start runs a server until the test ends.
func start(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(program)+".log"))
	require.NoError(t, err)
	if !filepath.IsAbs(program) {
		program = filepath.Join(bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	p, err := harness.Start(cmd, out)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(out.Name())
			t.Logf("%s: %s", program, text)
		}
	})
}

// answering waits until something answers at an address.
func answering(t *testing.T, address string) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get(address)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	}, patience.Wait(), 20*time.Millisecond, address)
}

// s3 is a bucket of versitygw, whose objects are the files of a folder.
func s3(t *testing.T) *site {
	t.Helper()
	root, sidecar := filepath.Join(t.TempDir(), "root"), filepath.Join(t.TempDir(), "sidecar")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "models"), 0o755))
	require.NoError(t, os.MkdirAll(sidecar, 0o755))
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	start(t, []string{"ROOT_ACCESS_KEY=ours", "ROOT_SECRET_KEY=secret"}, "versitygw", "--port", address, "posix", "--sidecar", sidecar, root)
	answering(t, "http://"+address)
	p := newProxy(t, "http://"+address)
	var puts time.Duration
	return &site{
		t: t, dir: filepath.Join(t.TempDir(), "store"), proxy: p,
		env: []string{"AWS_ENDPOINT_URL=http://" + p.address, "AWS_ACCESS_KEY_ID=ours", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none", "AWS_SHARED_CREDENTIALS_FILE=/none"},
		put: func(files map[string][]byte, to string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "models", to)))
			require.NoError(t, os.RemoveAll(filepath.Join(sidecar, "models", to)))
			puts++
			then := time.Now().Add(-time.Hour + puts*time.Second)
			for name, text := range files {
				path := filepath.Join(root, "models", to, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, text, 0o644))
				require.NoError(t, os.Chtimes(path, then, then))
				meta := filepath.Join(sidecar, "models", to, name, "meta") // where the gateway keeps the tag of what is put
				require.NoError(t, os.MkdirAll(meta, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(meta, "etag"), fmt.Appendf(nil, "%x", md5.Sum(text)), 0o644))
			}
		},
		uri: func(folder string) string { return "s3://models/" + folder },
	}
}

// gs is a bucket of fake-gcs-server.
func gs(t *testing.T) *site {
	t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	host, port, _ := strings.Cut(address, ":")
	p := newProxy(t, "http://"+address)
	start(t, nil, "fake-gcs-server", "-scheme", "http", "-host", host, "-port", port, "-backend", "memory", "-public-host", p.address, "-external-url", "http://"+p.address)
	answering(t, "http://"+address+"/storage/v1/b")
	call := func(method, path, kind string, body []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Less(t, resp.StatusCode, 300, "%s %s", method, path)
	}
	call(http.MethodPost, "/storage/v1/b", "application/json", []byte(`{"name": "models"}`))
	return &site{
		t: t, dir: filepath.Join(t.TempDir(), "store"), proxy: p,
		env: []string{"STORAGE_EMULATOR_HOST=" + p.address, "GOOGLE_APPLICATION_CREDENTIALS=", "GCE_METADATA_HOST=127.0.0.1:1"},
		put: func(files map[string][]byte, to string) {
			for name, text := range files {
				call(http.MethodPost, "/upload/storage/v1/b/models/o?uploadType=media&name="+url.QueryEscape(to+"/"+name), "application/octet-stream", text)
			}
		},
		uri: func(folder string) string { return "gs://models/" + folder },
	}
}

// azblob is a container of azurite, a program of Node.js, which make test-models installs.
func azblob(t *testing.T) *site {
	t.Helper()
	azurite, err := filepath.Abs("../modelservers/node_modules/.bin/azurite-blob")
	require.NoError(t, err)
	require.FileExists(t, azurite, "make test-models installs it")
	const account = "devstoreaccount1" // azurite's own, with a key that everybody knows
	const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	host, port, _ := strings.Cut(address, ":")
	start(t, nil, azurite, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence", "--blobHost", host, "--blobPort", port)
	answering(t, "http://"+address)
	p := newProxy(t, "http://"+address)
	shared, err := container.NewSharedKeyCredential(account, key)
	require.NoError(t, err)
	models, err := container.NewClientWithSharedKeyCredential("http://"+address+"/"+account+"/models", shared, nil)
	require.NoError(t, err)
	_, err = models.Create(t.Context(), nil)
	require.NoError(t, err)
	return &site{
		t: t, dir: filepath.Join(t.TempDir(), "store"), proxy: p,
		env: []string{"AZURE_STORAGE_ACCOUNT=" + account, "AZURE_STORAGE_KEY=" + key, "AZURE_STORAGE_DOMAIN=" + p.address, "AZURE_STORAGE_PROTOCOL=http"},
		put: func(files map[string][]byte, to string) {
			for name, text := range files {
				_, err := models.NewBlockBlobClient(to+"/"+name).UploadBuffer(t.Context(), text, nil)
				require.NoError(t, err)
			}
		},
		uri: func(folder string) string { return "azblob://models/" + folder },
	}
}

// oci is a registry; each model is a repository with one artifact, of tag v1.
func oci(t *testing.T) *site {
	t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "registry.yml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n", t.TempDir(), address)), 0o600))
	start(t, []string{"OTEL_TRACES_EXPORTER=none"}, "registry", "serve", config)
	answering(t, "http://"+address+"/v2/")
	p := newProxy(t, "http://"+address)
	return &site{
		t: t, dir: filepath.Join(t.TempDir(), "store"), proxy: p, env: []string{"DOCKER_CONFIG=" + t.TempDir()},
		put: func(files map[string][]byte, to string) {
			repo, err := remote.NewRepository(address + "/" + to)
			require.NoError(t, err)
			repo.PlainHTTP = true
			var layers []ocispec.Descriptor
			for _, name := range slices.Sorted(maps.Keys(files)) {
				layer := content.NewDescriptorFromBytes("application/vnd.cncf.model.weight.v1.raw", files[name])
				require.NoError(t, repo.Push(t.Context(), layer, bytes.NewReader(files[name])))
				layer.Annotations = map[string]string{ocispec.AnnotationTitle: name}
				layers = append(layers, layer)
			}
			made, err := oras.PackManifest(t.Context(), repo, oras.PackManifestVersion1_1, "application/vnd.cncf.model.manifest.v1+json", oras.PackManifestOptions{Layers: layers})
			require.NoError(t, err)
			require.NoError(t, repo.Tag(t.Context(), made, "v1"))
		},
		uri: func(folder string) string { return "oci://" + p.address + "/" + folder + ":v1" },
	}
}
