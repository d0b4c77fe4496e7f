package modelstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// childEnv is the name of a variable. If it is set, the test binary publishes a model
// again and again.
const childEnv = "MODELSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := childPublish(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The files of the model that children publish.
func childFiles() map[string]string {
	files := map[string]string{}
	for n := range 40 {
		files[fmt.Sprintf("part/%02d.safetensors", n)] = fmt.Sprint("weights ", n)
	}
	return files
}

// childPublish publishes one model again and again, until it is killed.
func childPublish(dir string) error {
	s, err := Open(Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("begins")
	for {
		m, content := manifest("hf://org/name", "c0ffee", childFiles())
		f, err := s.Admit(m, Want{})
		if err != nil {
			return err
		}
		for hash, text := range content {
			if f.have[hash] {
				continue
			}
			if err := os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600); err != nil {
				return err
			}
		}
		if _, err := f.Publish(m); err != nil {
			return err
		}
		if err := s.Remove(m.Key(), ""); err != nil {
			return err
		}
	}
}

func child(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, dir)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

// manifest makes the manifest of files, and returns the content of each by its hash.
func manifest(uri, revision string, files map[string]string) (m *fetchapi.Manifest, content map[string]string) {
	m, content = &fetchapi.Manifest{URI: uri, Revision: revision}, map[string]string{}
	for name, text := range files {
		sum := sha256.Sum256([]byte(text))
		hash := hex.EncodeToString(sum[:])
		content[hash] = text
		m.Files = append(m.Files, fetchapi.File{Path: name, Size: int64(len(text)), SHA256: hash})
	}
	return m, content
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// put fetches and publishes a model.
func put(t *testing.T, s *Store, uri, revision string, files map[string]string) Version {
	t.Helper()
	return putRef(t, s, uri, revision, "", files)
}

// putRef fetches and publishes a model by a ref.
func putRef(t *testing.T, s *Store, uri, revision, ref string, files map[string]string) Version {
	t.Helper()
	m, content := manifest(uri, revision, files)
	m.Ref = ref
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	putFiles(t, f, content)
	v, err := f.Publish(m)
	require.NoError(t, err)
	require.NoError(t, v.Damage)
	return v
}

// putFiles writes the missing files into the staging folder, as a fetch does.
func putFiles(t *testing.T, f *Fetch, content map[string]string) {
	t.Helper()
	for hash, text := range content {
		if !f.have[hash] {
			require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
		}
	}
}
