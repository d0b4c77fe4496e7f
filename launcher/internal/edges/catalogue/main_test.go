package catalogue

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// machine has two GPUs, and HOME and TOKEN in its environment.
func machine() Machine {
	return Machine{
		Engines: []string{"vllm", "llamacpp"},
		GPUs:    []string{"GPU-aaaa", "GPU-bbbb"},
		Env: func(name string) (string, bool) {
			value, set := map[string]string{"HOME": "/home/a", "TOKEN": "secret"}[name]
			return value, set
		},
		LookPath: func(name string) (string, error) {
			if name == "/bin/server" {
				return name, nil
			}
			return "", errors.New("there is none")
		},
	}
}

// parsed is the catalogue of a configuration file.
func parsed(t *testing.T, text string) *Catalogue {
	t.Helper()
	c, err := parse([]source{{"hotseat.yaml", []byte(text), true}}, machine())
	require.NoError(t, err)
	c.commands = nil // two texts may say the same at other places
	return c
}

// Each *.yaml of testdata/faults has its faults in the file *.faults. A file may have
// parts of several files, which lines such as "### conf.d/a.yaml" begin.
func TestFaultsOfFilesAreAllTold(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			_, err = parse(parts(data), machine())
			var faults Faults
			require.ErrorAs(t, err, &faults)
			golden := strings.TrimSuffix(file, ".yaml") + ".faults"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), faults.Error()+"\n")
		})
	}
}

func parts(data []byte) []source {
	all := []source{{name: "hotseat.yaml", settings: true}}
	for line := range bytes.Lines(data) {
		if name, found := strings.CutPrefix(string(line), "### "); found {
			all = append(all, source{name: strings.TrimSpace(name)})
			continue
		}
		last := &all[len(all)-1]
		last.data = append(last.data, line...)
	}
	return all
}
