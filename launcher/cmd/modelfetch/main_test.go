package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// envChild has the test binary be modelfetch.
const envChild = "MODELFETCH_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A parent that is killed leaves nobody who reads, some time before its child has
// noted how far it came.
func TestWhatHasComeIsNotedWhenNobodyReadsAnyMore(t *testing.T) {
	model := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(model, make([]byte, 64<<20), 0o600))
	staging := t.TempDir()
	cmd := exec.Command(os.Args[0], "--bytes-per-second", "1000000", "file://"+model)
	cmd.Env = append(os.Environ(), envChild+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var line fetchapi.Line
	require.NoError(t, json.NewDecoder(out).Decode(&line))
	require.Equal(t, fetchapi.TypeManifest, line.Type)
	require.NoError(t, json.NewEncoder(in).Encode(fetchapi.Line{Type: fetchapi.TypeGo, Staging: staging}))
	require.NoError(t, out.Close())
	fetched := func() int64 {
		parts, _ := filepath.Glob(filepath.Join(staging, "part-"+strings.Repeat("?", 16)))
		if len(parts) == 0 {
			return 0
		}
		info, err := os.Stat(parts[0])
		require.NoError(t, err)
		return info.Size()
	}
	unread := fetched()
	require.Eventually(t, func() bool { return fetched() >= unread+1e6 }, patience.Wait(), 10*time.Millisecond, "it goes on for a second, in which it says several times how far it is")
	require.NoError(t, in.Close())
	_ = cmd.Wait()
	notes, err := filepath.Glob(filepath.Join(staging, "part-*.note"))
	require.NoError(t, err)
	assert.Len(t, notes, 1)
}
