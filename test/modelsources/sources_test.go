//go:build modelservers

package modelsources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"hotseat.dev/hotseat/test/harness"
)

const patience = time.Minute

// bin is where the programs are.
var bin string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "hotseat-modelsources-")
	if err == nil {
		bin = folder
		err = build(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build what the tests run:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cleaned{m}, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// cleaned removes the programs after the tests.
type cleaned struct{ *testing.M }

// Run implements goleak's TestingM.
func (c cleaned) Run() int {
	defer os.RemoveAll(bin)
	return c.M.Run()
}

func build(ctx context.Context) error {
	if err := harness.Build(ctx, "../..", bin, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch"); err != nil {
		return err
	}
	servers := exec.CommandContext(ctx, "go", "-C", "../modelservers", "build", "-o", bin+"/",
		"github.com/distribution/distribution/v3/cmd/registry", "github.com/fsouza/fake-gcs-server", "github.com/versity/versitygw/cmd/versitygw")
	out, err := servers.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// site is a source with a store that pulls from it.
type site struct {
	t     *testing.T
	dir   string // of the store
	env   []string
	proxy *proxy                                   // that the store reaches the source through
	put   func(files map[string][]byte, to string) // replaces what is there below that folder
	uri   func(folder string) string
}

// start runs a server until the test ends.
func start(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), program+".log"))
	require.NoError(t, err)
	cmd := exec.Command(filepath.Join(bin, program), args...)
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
	}, patience, 20*time.Millisecond, address)
}

// proxy notes what goes through it.
type proxy struct {
	address string
	mu      sync.Mutex
	ranges  []string
	sent    int64
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	p := &proxy{address: address}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}, FlushInterval: -1}
	server := &http.Server{Addr: address, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		if span := r.Header.Get("Range"); span != "" {
			p.ranges = append(p.ranges, span)
		}
		p.mu.Unlock()
		forward.ServeHTTP(&counting{ResponseWriter: w, proxy: p}, r)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ListenAndServe() })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return p
}

// counting counts the bytes of answers.
type counting struct {
	http.ResponseWriter
	proxy *proxy
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.proxy.sent += int64(n)
	return n, err
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// seen gives, and forgets, which parts were asked for, and how much was sent.
func (p *proxy) seen() (ranges []string, sent int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ranges, sent = p.ranges, p.sent
	p.ranges, p.sent = nil, 0
	return ranges, sent
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
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
	return &site{
		t: t, dir: filepath.Join(t.TempDir(), "store"), proxy: p,
		env: []string{"AWS_ENDPOINT_URL=http://" + p.address, "AWS_ACCESS_KEY_ID=ours", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none", "AWS_SHARED_CREDENTIALS_FILE=/none"},
		put: func(files map[string][]byte, to string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "models", to)))
			for name, text := range files {
				path := filepath.Join(root, "models", to, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, text, 0o644))
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

// shown is a model as commands show it.
type shown struct {
	ID           string `json:"id"`
	URI          string `json:"uri"`
	Revision     string `json:"revision"`
	State        string `json:"state"`
	Bytes        int64  `json:"size_bytes"`
	Path         string `json:"path"`
	There        bool   `json:"already_there"`
	NetworkBytes int64  `json:"network_bytes"`
}

func (s *site) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "launcher"), append([]string{name, "--model-store", s.dir}, args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

func (s *site) try(args ...string) (m shown, said string, ok bool) {
	s.t.Helper()
	cmd := s.command("pull", append([]string{"-o", "json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if cmd.Run() != nil {
		return shown{}, errs.String(), false
	}
	require.NoError(s.t, json.Unmarshal(out.Bytes(), &m))
	return m, errs.String(), true
}

func (s *site) pull(args ...string) shown {
	s.t.Helper()
	m, said, ok := s.try(args...)
	require.True(s.t, ok, said)
	return m
}

func (s *site) has(m shown, files map[string][]byte) {
	s.t.Helper()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(m.Path, name))
		require.NoError(s.t, err)
		assert.True(s.t, bytes.Equal(want, got), name)
	}
}

func (s *site) verified() {
	s.t.Helper()
	out, err := s.command("models", "--verify").CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

func each(t *testing.T, do func(t *testing.T, s *site)) {
	for name, make := range map[string]func(*testing.T) *site{"s3": s3, "gs": gs, "oci": oci} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, make(t))
		})
	}
}

func TestAModelIsPulledOnceAndAnewWhenItHasChanged(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		files := map[string][]byte{"config.json": []byte("{}"), "sub/model.safetensors": random(3 << 20)}
		s.put(files, "org/tiny")
		m := s.pull(s.uri("org/tiny"))
		assert.Equal(t, s.uri("org/tiny"), m.URI)
		assert.EqualValues(t, 3<<20+2, m.Bytes)
		s.has(m, files)
		s.verified()
		assert.True(t, s.pull(s.uri("org/tiny")).There)

		files["config.json"] = []byte(`{"another": "one"}`)
		s.proxy.seen()
		s.put(files, "org/tiny")
		next := s.pull(s.uri("org/tiny"))
		assert.NotEqual(t, m.Revision, next.Revision)
		s.has(next, files)
	})
}

func TestAPullThatIsKilledGoesOnAtTheByte(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const size = 6 << 20
		files := map[string][]byte{"model.safetensors": random(size)}
		s.put(files, "org/cut")
		cmd := s.command("pull", "--bytes-per-second", "1MiB", s.uri("org/cut"))
		require.NoError(t, cmd.Start())
		staged := func() (sum int64) {
			parts, _ := filepath.Glob(filepath.Join(s.dir, "staging", "*", "part-*"))
			for _, p := range parts {
				if info, err := os.Stat(p); err == nil && !strings.HasSuffix(p, ".note") {
					sum += info.Size()
				}
			}
			return sum
		}
		require.Eventually(t, func() bool { return staged() > 2<<20 }, patience, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait() // it was killed
		s.proxy.seen()
		m := s.pull(s.uri("org/cut"))
		s.has(m, files)
		s.verified()
		ranges, _ := s.proxy.seen()
		assert.NotEmpty(t, ranges, "the rest was asked for")
		assert.Less(t, m.NetworkBytes, int64(size-1<<20), "what was there was not fetched again")
	})
}

func TestAFolderIsNotItsNeighbourAndAnObjectIsOneFile(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *site{"s3": s3, "gs": gs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := make(t)
			s.put(map[string][]byte{"one": []byte("1"), "b/two": []byte("2")}, "m/a")
			s.put(map[string][]byte{"three": []byte("3")}, "m/ab")
			for _, address := range []string{s.uri("m/a"), s.uri("m/a/")} {
				m := s.pull(address)
				assert.Equal(t, s.uri("m/a"), m.URI)
				assert.EqualValues(t, 2, m.Bytes)
			}
			s.has(s.pull(s.uri("m/a/b")), map[string][]byte{"two": []byte("2")})
			s.has(s.pull(s.uri("m/a/one")), map[string][]byte{"one": []byte("1")})
			_, said, ok := s.try(s.uri("m/none"))
			assert.False(t, ok)
			assert.Contains(t, said, "NotFound: there is no object below "+s.uri("m/none"))
		})
	}
}

func TestASourceThatRefusesIsToldInWords(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		s := s3(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		right := s.env
		s.env = append(slices.Clone(right), "AWS_SECRET_ACCESS_KEY=wrong")
		_, said, _ := s.try(s.uri("m"))
		assert.Contains(t, said, "AccessDenied: the source refuses access")
		assert.Contains(t, said, "AWS_ACCESS_KEY_ID")
		assert.NotContains(t, said, "wrong")
		s.env = right
		_, said, _ = s.try("s3://none/m")
		assert.Contains(t, said, "NotFound")
	})
	t.Run("oci", func(t *testing.T) {
		t.Parallel()
		s := oci(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		_, said, _ := s.try(strings.TrimSuffix(s.uri("m"), "v1") + "v2")
		assert.Contains(t, said, "NotFound")
		_, said, _ = s.try(s.uri("none"))
		assert.Contains(t, said, "NotFound")
		_, said, _ = s.try("oci://" + s.proxy.address + "/UPPER")
		assert.Contains(t, said, "it is as oci://registry/repository:tag")
	})
	t.Run("gs", func(t *testing.T) {
		t.Parallel()
		s := gs(t)
		_, said, _ := s.try("gs://none/m")
		assert.Contains(t, said, "NotFound")
		s.put(map[string][]byte{"../../x": []byte("1")}, "hostile")
		_, said, ok := s.try(s.uri("hostile"))
		assert.False(t, ok)
		assert.Contains(t, said, "is refused")
	})
}
