package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

// A disk is full in two ways here, both real: the limit of a file's size
// (EFBIG), which needs no rights, and a small file system (ENOSPC), which
// needs a mount namespace. The child says what went wrong; nothing is "ok".

func TestAJournalBehindALimitOfFileSizeFailsCleanlyAndGoesOnWhenItIsRaised(t *testing.T) {
	out, err := child(t, "limited", t.TempDir()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "ok\n", string(out))
}

func TestAJournalOnAFullDiskFailsCleanlyAndGoesOnWhenThereIsRoom(t *testing.T) {
	out, err := inNamespaces(child(t, "full-disk", t.TempDir())).CombinedOutput()
	require.NoError(t, err, "namespaces could not be made: %s", out)
	assert.Equal(t, "ok\n", string(out))
}

func TestAStateFolderOnAFullDiskIsLockedAndItsJournalReadAgain(t *testing.T) {
	out, err := inNamespaces(child(t, "full-folder", t.TempDir())).CombinedOutput()
	require.NoError(t, err, "namespaces could not be made: %s", out)
	assert.Equal(t, "ok\n", string(out))
}

func childLimited(dir string) {
	limit := func(bytes uint64) error {
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY})
	}
	say(fillUp(dir, unix.EFBIG, func() error { return limit(10_000) }, func() error { return limit(unix.RLIM_INFINITY) }))
}

func childFullDisk(dir string) {
	filler := filepath.Join(dir, "filler")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		say(err)
		return
	}
	say(fillUp(dir, unix.ENOSPC,
		func() error { return os.WriteFile(filler, make([]byte, 100<<10), 0o600) },
		func() error { return os.Remove(filler) }))
}

// fillUp appends until the disk is full, and checks what is then said, what is
// in the file, and that all goes on when there is room again.
func fillUp(dir string, full error, fill, makeRoom func() error) error {
	path := filepath.Join(dir, "journal")
	j, _, err := journal.Open(path, journal.Options{
		MaxBytes: 1 << 30,
		Snapshot: func() ([]any, error) { return []any{note{Filler: strings.Repeat("x", 64<<10)}}, nil },
	})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	if err := fill(); err != nil {
		return err
	}
	// Records of 307 bytes do not fit pages evenly: the last write is cut.
	n := 0
	add := func() error { return j.Append(note{Counter: "a", Value: n, Filler: strings.Repeat("x", 239)}) }
	for {
		if err = add(); err != nil {
			break
		}
		n++
	}
	if !errors.Is(err, full) {
		return fmt.Errorf("the append failed with %w, wanted %w", err, full)
	}
	for range 3 {
		if err := add(); !errors.Is(err, full) {
			return fmt.Errorf("a second append failed with %w, wanted %w", err, full)
		}
	}
	if err := checkFile(dir, n); err != nil {
		return err
	}
	if err := j.Compact(); !errors.Is(err, full) {
		return fmt.Errorf("the compaction failed with %w, wanted %w", err, full)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		return errors.New("the compaction left its file behind")
	}
	if err := makeRoom(); err != nil {
		return err
	}
	for range 10 {
		if err := add(); err != nil {
			return fmt.Errorf("the append with room again: %w", err)
		}
		n++
	}
	return checkFile(dir, n)
}

// checkFile sees whether the file ends with a whole line and holds n records.
func checkFile(dir string, n int) error {
	data, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	if lines := strings.Count(string(data), "\n"); lines != n+1 || !strings.HasSuffix(string(data), "}\n") {
		return fmt.Errorf("the file has %d lines, wanted %d, and ends with %q", lines, n+1, data[len(data)-10:])
	}
	return nil
}

// childFullFolder is a program that is started again, after the machine was,
// while the disk is full.
func childFullFolder(dir string) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		say(err)
		return
	}
	say(restartOnFullDisk(dir))
}

func restartOnFullDisk(dir string) error {
	path := filepath.Join(dir, "journal")
	run := func(boot string, work func(*journal.Journal) error) error {
		lock, err := journal.Lock(dir)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
		j, found, err := journal.Open(path, journal.Options{BootID: boot})
		if err != nil {
			return err
		}
		defer func() { _ = j.Close() }()
		if boot == "boot-2" && (found.BootID != "boot-1" || len(found.Records) != 1 || found.Broken != nil) {
			return fmt.Errorf("found %+v", found)
		}
		return work(j)
	}
	if err := run("boot-1", func(j *journal.Journal) error { return j.Append(note{}) }); err != nil {
		return err
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the disk is not full: %w", err)
	}
	return run("boot-2", func(j *journal.Journal) error {
		if err := j.Append(note{Filler: strings.Repeat("x", 5000)}); !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("the append failed with %w", err)
		}
		if err := os.Remove(filler); err != nil {
			return err
		}
		return j.Append(note{})
	})
}

func say(err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ok")
}
