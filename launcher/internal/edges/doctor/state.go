package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// leastDisk is room for logs.
const leastDisk = 1 << 30

// diskTime is how long the disk of the state folder may take for a small file.
const diskTime = 5 * time.Second

// checkStateFolder tries to write where the state folder is or would be made.
func checkStateFolder(ctx context.Context, e *examination) []Result {
	tried := make(chan []Result, 1)
	go func() { tried <- tryStateFolder(e) }()
	timer := time.NewTimer(diskTime)
	defer timer.Stop()
	select {
	case results := <-tried:
		return results
	case <-timer.C:
	case <-ctx.Done():
	}
	return one(Result{
		Name: "state folder", Status: Fail, Finding: fmt.Sprintf("the disk of %s does not answer", e.StateDir),
		Remedy: "see the kernel log, and the mount or volume that it is on, or choose another by --state-dir",
	})
}

func tryStateFolder(e *examination) []Result {
	if wrong, ok := errors.AsType[*statedir.FolderError](statedir.Check(e.StateDir)); ok {
		return one(Result{Name: "state folder", Status: Fail, Finding: wrong.Error()}) // it says what to do
	}
	dir, missing, err := existing(e.StateDir)
	if err == nil {
		err = tryWriting(dir, missing)
	}
	if err != nil {
		return one(Result{
			Name: "state folder", Status: Fail, Finding: err.Error(),
			Remedy: "choose another by --state-dir, or make it writable for this user",
		})
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return one(Result{Name: "state folder", Status: Warn, Finding: fmt.Sprintf("cannot read the free space of %s: %v", dir, err)})
	}
	return one(judgeDisk(e.StateDir, missing, disk.Bavail*uint64(disk.Bsize)))
}

func judgeDisk(dir string, missing bool, free uint64) Result {
	r := Result{Name: "state folder", Status: OK, Finding: fmt.Sprintf("%s is writable, %s free", dir, launcher.BytesText(free))}
	if missing {
		r.Finding = fmt.Sprintf("%s can be created, %s free", dir, launcher.BytesText(free))
	}
	if free < leastDisk {
		r.Status = Warn
		r.Remedy = "engines write their logs there; free some space, or limit the logs by --log-max-bytes"
	}
	return r
}

// existing gives the folder itself, or the nearest one above it that there is.
func existing(dir string) (found string, missing bool, err error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", false, fmt.Errorf("%s is not a folder", dir)
		case err == nil:
			return dir, missing, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", false, fmt.Errorf("cannot look at the state folder: %w", err)
		}
		dir, missing = filepath.Dir(dir), true
	}
}

// tryWriting makes a file in the state folder and removes it. The folder above
// one that is missing is only asked whether it lets itself be written.
func tryWriting(dir string, missing bool) error {
	if missing {
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("cannot create the state folder in %s: %w", dir, err)
		}
		return nil
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
