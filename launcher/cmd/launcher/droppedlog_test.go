package main

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func TestTailOfALogThatLostItsBeginning(t *testing.T) {
	dir := t.TempDir()
	logs, err := outlog.Open(outlog.Options{Dir: dir})
	require.NoError(t, err)
	defer logs.Close()
	events := eventlog.New(4, 0)
	instances := apitest.NewInstances(events, logs)
	server := httptest.NewServer(api.New(api.Options{Instances: instances, Events: events, Logs: logs, Logger: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	_, err = instances.Create(launcher.CreateRequest{ID: "a"})
	require.NoError(t, err)
	name, ok := logs.Latest("a")
	require.True(t, ok)
	var text strings.Builder
	for n := range 60_000 {
		fmt.Fprintf(&text, "%09d\n", n)
	}
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	drop := func(lines int64) {
		t.Helper()
		require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, lines*10))
	}
	cl, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	defer cl.Close()
	for _, dropped := range []int64{10_000, 40_000} { // more than one chunk is left, and less
		drop(dropped)
		for tail, want := range map[int]int64{0: 60_000, 5: 59_995, 60_000: dropped, -1: 0} {
			from, err := startOfTail(t.Context(), cl, "a", tail)
			require.NoError(t, err)
			assert.Equal(t, want*10, from, "the last %d lines of %d", tail, 60_000-dropped)
		}
	}
}
