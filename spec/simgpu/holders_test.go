package simgpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func holders(t *testing.T, dir *simgpu.Dir, uuid string) []simgpu.Holder {
	t.Helper()
	list, err := dir.Holders(uuid)
	require.NoError(t, err)
	return list
}

// holderFile is where process pid says what it holds of GPU-a.
func holderFile(dir *simgpu.Dir, pid int) string {
	return filepath.Join(dir.Path(), "GPU-a", strconv.Itoa(pid))
}

func TestAHolderCountsWhileItLivesAndAZombieIsGone(t *testing.T) {
	dir := made(t)
	pid, end := child(t)
	require.NoError(t, dir.Set("GPU-a", pid, 5*gib))
	require.Equal(t, []simgpu.Holder{{PID: pid, Bytes: 5 * gib}}, holders(t, dir, "GPU-a"))
	require.Empty(t, holders(t, dir, "GPU-b"))

	end() // it is reaped at the end of the test only
	require.Eventually(t, func() bool { return len(holders(t, dir, "GPU-a")) == 0 }, patience.Wait(), time.Millisecond)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	require.Contains(t, string(stat), ") Z ")
	require.FileExists(t, holderFile(dir, pid))
}

func TestAReapedHolderIsGone(t *testing.T) {
	dir := made(t)
	cmd := exec.CommandContext(t.Context(), "true")
	require.NoError(t, cmd.Run())
	require.NoError(t, dir.Set("GPU-a", cmd.Process.Pid, gib))
	require.Empty(t, holders(t, dir, "GPU-a"))
}

func TestWhatKilledHoldersLeftIsRemovedWhenAnotherOneReservesMemory(t *testing.T) {
	dir := made(t)
	cmd := exec.CommandContext(t.Context(), "true")
	require.NoError(t, cmd.Run())
	require.NoError(t, dir.Set("GPU-a", cmd.Process.Pid, gib))
	require.FileExists(t, holderFile(dir, cmd.Process.Pid))
	late := exec.CommandContext(t.Context(), "true")
	require.NoError(t, late.Run())
	require.NoError(t, dir.SetUntil("GPU-a", late.Process.Pid, gib, time.Now().Add(time.Hour)))

	require.NoError(t, dir.Reserve("GPU-a", os.Getpid(), gib))
	require.NoFileExists(t, holderFile(dir, cmd.Process.Pid))
	require.FileExists(t, holderFile(dir, late.Process.Pid), "its memory still counts")
	require.Len(t, holders(t, dir, "GPU-a"), 2)
}

func TestMemoryFreedLateCountsUntilThenAfterTheProcessIsGone(t *testing.T) {
	dir := made(t)
	cmd := exec.CommandContext(t.Context(), "true")
	require.NoError(t, cmd.Run())
	pid := cmd.Process.Pid
	require.NoError(t, dir.SetUntil("GPU-a", pid, gib, time.Now().Add(time.Hour)))
	require.Equal(t, []simgpu.Holder{{PID: pid, Bytes: gib}}, holders(t, dir, "GPU-a"))
	require.NoError(t, dir.SetUntil("GPU-a", pid, gib, time.Now().Add(-time.Millisecond)))
	require.Empty(t, holders(t, dir, "GPU-a"))
}

func TestALivingHolderCountsPastItsUntil(t *testing.T) {
	dir := made(t)
	require.NoError(t, dir.SetUntil("GPU-a", os.Getpid(), gib, time.Now().Add(-time.Hour)))
	require.Equal(t, []simgpu.Holder{{PID: os.Getpid(), Bytes: gib}}, holders(t, dir, "GPU-a"))
}

func TestAFileOlderThanTheProcessOfItsNumberCountsNothing(t *testing.T) {
	dir := made(t)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), gib))
	require.Len(t, holders(t, dir, "GPU-a"), 1)
	old := time.Now().Add(-24 * time.Hour)
	require.NoError(t, os.Chtimes(holderFile(dir, os.Getpid()), old, old))
	require.Empty(t, holders(t, dir, "GPU-a"))
}

func TestZeroGivesBackAndAskingTwiceIsFine(t *testing.T) {
	dir := made(t)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), gib))
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 0))
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 0))
	require.Empty(t, holders(t, dir, "GPU-a"))
	require.NoFileExists(t, holderFile(dir, os.Getpid()))
}

func TestAnyProcessCanWriteAPlainNumber(t *testing.T) {
	dir := made(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		`echo 12345 > "$0/GPU-a/$PPID"; echo notes > "$0/GPU-a/notes"; echo 9 > "$0/GPU-a/0$PPID"; : > "$0/GPU-a/1"`, dir.Path())
	require.NoError(t, cmd.Run())
	require.Equal(t, []simgpu.Holder{{PID: os.Getpid(), Bytes: 12345}}, holders(t, dir, "GPU-a"))
}

func TestAHolderThatCannotBeReadIsNamed(t *testing.T) {
	for _, text := range []string{"much", "-1", "1 2 3", "1 soon", "18446744073709551616"} {
		t.Run(text, func(t *testing.T) {
			dir := made(t)
			file := holderFile(dir, os.Getpid())
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := dir.Holders("GPU-a")
			require.ErrorContains(t, err, file)
		})
	}
}

func TestAnUnknownGPUOrNoProcessIsRefused(t *testing.T) {
	dir := made(t)
	_, err := dir.Holders("GPU-x")
	require.ErrorContains(t, err, "GPU-x")
	require.ErrorContains(t, dir.Set("../GPU-a", 1, 1), "../GPU-a")
	require.ErrorContains(t, dir.Reserve("GPU-x", 1, 1), "GPU-x")
	require.ErrorContains(t, dir.Set("GPU-a", 0, 1), "0 is no process")
}

func TestAGPUWhoseFolderIsMissingHasNoHoldersAndCanBeCharged(t *testing.T) {
	dir := made(t)
	require.NoError(t, os.Remove(filepath.Join(dir.Path(), "GPU-a")))
	require.Empty(t, holders(t, dir, "GPU-a"))
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), gib))
	require.Len(t, holders(t, dir, "GPU-a"), 1)
}

func TestAReaderNeverSeesHalfANumber(t *testing.T) {
	dir := made(t)
	short, long := uint64(7), 79*gib
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), short))
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := dir.Set("GPU-a", os.Getpid(), []uint64{long, short}[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		list, err := dir.Holders("GPU-a")
		if err != nil || len(list) != 1 || list[0].Bytes != short && list[0].Bytes != long {
			t.Errorf("saw %v, %v", list, err)
			break
		}
	}
	close(done)
	writer.Wait()
	entries, err := os.ReadDir(filepath.Join(dir.Path(), "GPU-a"))
	require.NoError(t, err)
	require.Len(t, entries, 2, "temporary files are left beside the holder's and the lock")
}

func TestOfManyWhoReserveAtOnceOnlyThoseThatFitGetIt(t *testing.T) {
	dir := made(t) // GPU-b has 40 GiB
	var pids []int
	for range 8 {
		pid, _ := child(t)
		pids = append(pids, pid)
	}
	results := make([]error, len(pids))
	var all sync.WaitGroup
	for i, pid := range pids {
		all.Go(func() { results[i] = dir.Reserve("GPU-b", pid, 15*gib) })
	}
	all.Wait()
	granted := 0
	for _, err := range results {
		if err == nil {
			granted++
			continue
		}
		var full *simgpu.OutOfMemoryError
		require.True(t, errors.As(err, &full), "%v", err)
		require.Equal(t, 40*gib, full.TotalBytes)
		require.Equal(t, 15*gib, full.WantBytes)
		require.Equal(t, 10*gib, full.FreeBytes)
	}
	require.Equal(t, 2, granted)
	require.Len(t, holders(t, dir, "GPU-b"), 2)
}

func TestAReserveReplacesWhatTheProcessHeldAndARefusedOneKeepsIt(t *testing.T) {
	dir := made(t)
	self := os.Getpid()
	require.NoError(t, dir.Reserve("GPU-b", self, 30*gib))
	require.NoError(t, dir.Reserve("GPU-b", self, 40*gib))
	require.ErrorContains(t, dir.Reserve("GPU-b", self, 40*gib+1), "out of memory")
	require.Equal(t, []simgpu.Holder{{PID: self, Bytes: 40 * gib}}, holders(t, dir, "GPU-b"))
	require.NoError(t, dir.Reserve("GPU-b", self, 0))
	require.Empty(t, holders(t, dir, "GPU-b"))
}

func TestAProcessWhoseNameLooksLikeAStatLineIsFound(t *testing.T) {
	dir := made(t)
	program := filepath.Join(t.TempDir(), ") Z 1 (")
	text, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o700))
	cmd := exec.CommandContext(t.Context(), program, "1000")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && bytes.Contains(comm, []byte(") Z"))
	}, patience.Wait(), time.Millisecond)
	require.NoError(t, dir.Set("GPU-a", cmd.Process.Pid, gib))
	require.Len(t, holders(t, dir, "GPU-a"), 1)
}
