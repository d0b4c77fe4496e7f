//go:build modelservers

package modelsources

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// site is a source with a store that pulls from it.
type site struct {
	t     *testing.T
	dir   string // of the store
	env   []string
	proxy *proxy                                   // that the store reaches the source through
	put   func(files map[string][]byte, to string) // replaces what is there below that folder
	uri   func(folder string) string
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
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

// each does the same with a source of each scheme.
func each(t *testing.T, do func(t *testing.T, s *site)) {
	eachBucket(t, do)
	t.Run("oci", func(t *testing.T) {
		t.Parallel()
		do(t, oci(t))
	})
}

// eachBucket does the same with buckets of each scheme: these have folders, and objects
// that may change. What an artifact of a registry has is named by its hash.
func eachBucket(t *testing.T, do func(t *testing.T, s *site)) {
	for name, make := range map[string]func(*testing.T) *site{"s3": s3, "gs": gs, "azblob": azblob} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, make(t))
		})
	}
}

// fetched waits until so much has come of what is being pulled.
func (s *site) fetched(atLeast int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var sum int64
		parts, _ := filepath.Glob(filepath.Join(s.dir, "staging", "*", "part-*"))
		for _, p := range parts {
			if info, err := os.Stat(p); err == nil && !strings.HasSuffix(p, ".note") {
				sum += info.Size()
			}
		}
		return sum > atLeast
	}, patience.Wait(), 10*time.Millisecond)
}

// refused pulls what cannot be had, and looks for words in what is said of it.
func (s *site) refused(uri string, words ...string) {
	s.t.Helper()
	_, said, ok := s.try(uri)
	assert.False(s.t, ok, uri)
	for _, word := range words {
		assert.Contains(s.t, said, word)
	}
	assert.NotContains(s.t, said, "hidden")
	assert.NotContains(s.t, said, base64.StdEncoding.EncodeToString([]byte("hidden")))
}

// keepsNone looks for a credential in all that the store has.
func (s *site) keepsNone(credential string) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		assert.NotContains(s.t, string(text), credential, path)
		return err
	}))
}
