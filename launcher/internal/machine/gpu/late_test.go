package gpu_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestGPUsOfTheBootAreUsedWhileTheDriverDoesNotAnswer(t *testing.T) {
	dir, _ := machine(t)
	opts := gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir), KnownFile: filepath.Join(t.TempDir(), "gpus.json")}
	first, err := gpu.Open(opts)
	require.NoError(t, err)
	devices := first.Devices()
	require.NoError(t, first.Close())
	hung := []string{"GPU-b", "GPU-c", "MIG-a1", "MIG-a2"}
	for _, uuid := range hung {
		put(t, dir, uuid, "hang")
	}

	p, err := gpu.Open(opts)
	require.NoError(t, err)
	assert.Equal(t, "nvml", p.Kind())
	assert.Equal(t, devices, p.Devices())
	assert.Less(t, timed(func() {
		_, err := p.Memory("GPU-b")
		var silent *gpu.SilentError
		require.ErrorAs(t, err, &silent)
		assert.Contains(t, p.Health("GPU-c").Reason, "does not answer")
		_, err = p.Memory("GPU-x")
		require.ErrorContains(t, err, "GPU-x")
		require.NotErrorAs(t, err, &silent)
	}), patience.Wait(), "nobody waits for the driver")

	for _, uuid := range hung {
		require.NoError(t, os.Remove(filepath.Join(dir, uuid, "hang")))
	}
	require.Eventually(t, func() bool { return p.Health("GPU-b").OK }, patience.Wait(), time.Millisecond)
	assert.EqualValues(t, 40*gib, memory(t, p, "GPU-b").TotalBytes)
	require.NoError(t, p.Close())
}

func TestGPUsOfAnotherBootAreNotKnown(t *testing.T) {
	dir, _ := machine(t)
	opts := gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir), KnownFile: filepath.Join(t.TempDir(), "gpus.json")}
	require.NoError(t, open(t, opts).Close())
	this, err := os.ReadFile(opts.KnownFile)
	require.NoError(t, err)
	boot, err := procfs.BootID()
	require.NoError(t, err)
	another := bytes.ReplaceAll(this, []byte(boot), []byte("another"))
	require.NotEqual(t, this, another)
	require.NoError(t, os.WriteFile(opts.KnownFile, another, 0o600))
	open(t, opts)
	now, err := os.ReadFile(opts.KnownFile)
	require.NoError(t, err)
	assert.Equal(t, string(this), string(now))
}

func TestSlowDriverIsWaitedForAlthoughItsGPUsAreKnown(t *testing.T) {
	dir, _ := machine(t)
	said := &bytes.Buffer{}
	opts := gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir), KnownFile: filepath.Join(t.TempDir(), "gpus.json"), Logger: slog.New(slog.NewTextHandler(said, nil))}
	require.NoError(t, open(t, opts).Close())
	hang := filepath.Join(dir, "hang")
	require.NoError(t, os.WriteFile(hang, nil, 0o600))
	answers := time.AfterFunc(11*time.Second, func() { assert.NoError(t, os.Remove(hang)) }) // longer than each GPU may take
	p, err := gpu.Open(opts)
	require.NoError(t, err)
	assert.False(t, answers.Stop(), "the driver has answered")
	assert.NotContains(t, said.String(), "DOES NOT ANSWER")
	assert.True(t, p.Health("GPU-b").OK)
	require.NoError(t, p.Close())
}

func TestSilentGPUStaysKnown(t *testing.T) {
	dir, _ := machine(t)
	opts := gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir), KnownFile: filepath.Join(t.TempDir(), "gpus.json")}
	require.NoError(t, open(t, opts).Close())
	all, err := os.ReadFile(opts.KnownFile)
	require.NoError(t, err)

	put(t, dir, "GPU-b", "hang")
	p, err := gpu.Open(opts)
	require.NoError(t, err)
	assert.Len(t, p.Devices(), 3)
	now, err := os.ReadFile(opts.KnownFile)
	require.NoError(t, err)
	assert.Equal(t, string(all), string(now))
	require.NoError(t, os.Remove(filepath.Join(dir, "GPU-b", "hang")))
	require.NoError(t, p.Close())
}
