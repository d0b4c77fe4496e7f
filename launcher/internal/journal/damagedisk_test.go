package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

func TestAJournalIsOpenedOnAFullDiskWhateverIsThere(t *testing.T) {
	for what, role := range map[string]string{"nothing": "full-start", "a damaged journal": "full-damaged"} {
		t.Run(what, func(t *testing.T) {
			cmd := inNamespaces(child(t, role, t.TempDir()))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "namespaces could not be made: %s", out)
			assert.Equal(t, "ok\n", string(out))
		})
	}
}

func childFullStart(dir string) {
	say(onFullDisk(dir, func(path string) error { return nil }, func(found journal.Found) error {
		if found.New || found.Broken != nil || len(found.Records) != 0 {
			return fmt.Errorf("found %+v", found)
		}
		return nil
	}))
}

func childFullDamaged(dir string) {
	say(onFullDisk(dir, func(path string) error {
		j, _, err := journal.Open(path, journal.Options{})
		if err != nil {
			return err
		}
		if err := errors.Join(j.Append(note{Value: 0}), j.Append(note{Value: 1}), j.Append(note{Value: 2}), j.Close()); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, bytes.Replace(data, []byte(`"value":1`), []byte(`"value":7`), 1), 0o600)
	}, func(found journal.Found) error {
		if found.Broken == nil || len(found.Records) != 2 {
			return fmt.Errorf("found %+v", found)
		}
		return nil
	}))
}

// onFullDisk opens a journal on a disk that has become full, appends to it in
// vain, and again when there is room.
func onFullDisk(dir string, prepare func(path string) error, check func(journal.Found) error) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	path, filler := filepath.Join(dir, "journal"), filepath.Join(dir, "filler")
	if err := prepare(path); err != nil {
		return err
	}
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the disk is not full: %w", err)
	}
	j, found, err := journal.Open(path, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	if err := check(found); err != nil {
		return err
	}
	if err := j.Append(note{Filler: string(make([]byte, 5000))}); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the append failed with %w", err)
	}
	if err := errors.Join(os.Remove(filler), j.Append(note{Value: 5}), j.Close()); err != nil {
		return err
	}
	again, after, err := journal.Open(path, journal.Options{})
	if err != nil {
		return err
	}
	if len(after.Records) != len(found.Records)+1 {
		return fmt.Errorf("found %d records, and %d before", len(after.Records), len(found.Records))
	}
	if aside, _ := filepath.Glob(path + ".broken-*"); found.Broken != nil && len(aside) != 1 {
		return fmt.Errorf("damaged journals that are kept: %q", aside)
	}
	return again.Close()
}
