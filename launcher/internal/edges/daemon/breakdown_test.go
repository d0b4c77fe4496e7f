package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEnginesLiveOnWhenTheControlPortBreaksDown(t *testing.T) {
	program, serving := filepath.Join(t.TempDir(), "engine"), make(chan struct{})
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 300\n"), 0o755))
	d, err := New(Options{
		Config: config.Config{
			Listen: "127.0.0.1:0", StateDir: t.TempDir(), GPUs: "simulated:1", InstanceHost: "127.0.0.1",
			Cgroups: "none", OnExit: "stop", StartMethod: launcherapi.StartExec, WatchBuffer: 10, HoldTimeout: time.Minute,
			StartTimeout: time.Minute, SleepTimeout: time.Minute, WakeTimeout: time.Minute, DrainTimeout: time.Second,
			StopGrace: time.Second, StartingGrace: time.Second, MemoryTimeout: time.Second,
		},
		Program: []string{program}, Serving: func() { close(serving) }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	<-serving
	view, err := d.sup.Create(launcher.CreateRequest{ID: "a", Spec: launcherapi.InstanceSpec{Args: []string{"m"}}})
	require.NoError(t, err)
	require.NoError(t, d.listener.Close())
	require.ErrorContains(t, <-ended, "cannot serve the control API")
	engine, err := os.FindProcess(view.PID)
	require.NoError(t, err)
	require.NoError(t, engine.Signal(syscall.Signal(0)), "nobody has asked for its end: the next launcher adopts it")
	require.NoError(t, engine.Kill())
	_, err = engine.Wait()
	require.NoError(t, err)
}
