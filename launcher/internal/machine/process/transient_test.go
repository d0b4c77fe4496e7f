package process_test

import (
	"encoding/json"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestAnAdoptionThatFailsForWantOfDescriptorsSaysNothingOfTheProcess(t *testing.T) {
	h := newHost(t, cgroup.None)
	id, _ := h.orphan(t)
	failed := 0
	for room := 0; ; room++ { // at each of the descriptors that it takes
		p, err := adoptWithin(t, h, id, room)
		if err == nil {
			stop(t, p)
			break
		}
		failed++
		var gone *process.GoneError
		require.NotErrorAs(t, err, &gone, "with room for %d", room)
		require.True(t, alive(id.PID))
	}
	require.Positive(t, failed)
}

// adoptWithin adopts the process while this one may open no more than that many
// descriptors.
func adoptWithin(t *testing.T, h *host, id process.ID, room int) (*process.Process, error) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	free, err := os.Open(os.DevNull)
	require.NoError(t, err)
	lowest := uint64(free.Fd())
	require.NoError(t, free.Close())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowest + uint64(room), Max: was.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	return h.Adopt("a", id)
}

func TestTheEndOfAnAdoptedProcessIsToldAtOnceWhereNobodyRecordsIt(t *testing.T) {
	h := newHost(t, cgroup.None)
	require.NoError(t, h.Close())
	h.recordWait = 0
	require.NoError(t, h.open())
	launcher, said := perform(t, "launcher "+h.mark+" "+string(h.mode)+" "+h.exitDir)
	lines := said.saysAll("id", "worker", "ready")
	var id process.ID
	require.NoError(t, json.Unmarshal([]byte(lines["id"]), &id))
	p, err := h.Adopt("a", id)
	require.NoError(t, err)
	worker, err := strconv.Atoi(lines["worker"])
	require.NoError(t, err)

	require.NoError(t, launcher.Process.Signal(syscall.SIGSTOP), "its parent lives, and reaps nobody")
	require.NoError(t, syscall.Kill(id.PID, syscall.SIGKILL))
	select {
	case <-p.Done():
	case <-time.After(patience.Wait()):
		require.FailNow(t, "its end is not told")
	}
	require.Nil(t, p.Exit().Code, "nobody saw how it ended")
	require.NoError(t, syscall.Kill(worker, syscall.SIGKILL))
	require.NoError(t, launcher.Process.Kill())
	stop(t, p)
}
