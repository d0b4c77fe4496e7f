package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// base has a folder for each cluster of this machine. It does not follow TMPDIR,
// so that everybody sees what a killed keeper left. It is not below /var or /run,
// of which nodes have their own.
const base = "/tmp/hotseat-cluster"

// groupPrefix and the name of a cluster make the name of its control groups.
const groupPrefix = "hotseat-cluster-"

// claim makes the folder of a cluster and locks it. The lock is the keeper's
// for as long as the keeper lives; it says that the cluster runs.
func claim(name string) (*os.File, error) {
	dir := filepath.Join(base, name)
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the cluster's folder: %w", err)
		}
		lock, err := lockFolder(dir)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("cluster %s runs already: end it by make cluster-down, or choose another name by %s", name, EnvName)
		}
		if !errors.Is(err, fs.ErrNotExist) { // swept in between
			return lock, err
		}
	}
}

// lockFolder locks a folder. Errors: unix.EWOULDBLOCK when somebody else has it
// locked, fs.ErrNotExist when it is not or no longer there.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", dir, err), f.Close())
	}
	opened, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if there, err := os.Stat(dir); err != nil || !os.SameFile(opened, there) {
		return nil, errors.Join(fs.ErrNotExist, f.Close())
	}
	return f, nil
}

// Sweep removes what clusters left whose keeper is gone.
func Sweep() error {
	dirs, err := filepath.Glob(base + "/*")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, e := lockFolder(dir)
		if errors.Is(e, unix.EWOULDBLOCK) || errors.Is(e, fs.ErrNotExist) {
			continue
		}
		if e == nil {
			e = errors.Join(removeAll(filepath.Base(dir)), lock.Close())
		}
		err = errors.Join(err, e)
	}
	return err
}

// removeAll removes the control groups and the folder of a cluster.
func removeAll(name string) error {
	if err := removeGroups(groupPrefix + name); err != nil {
		return err // the folder stays, so that the next sweep tries again
	}
	if err := os.RemoveAll(filepath.Join(base, name)); err != nil {
		return fmt.Errorf("cannot remove the cluster's folder: %w", err)
	}
	return nil
}

// removeGroups removes the control groups of a cluster, in each hierarchy.
// Processes that were killed leave their group a moment after their end.
func removeGroups(name string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := removeGroupsOnce(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func removeGroupsOnce(name string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup/"+name) {
		var groups []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // what goes meanwhile is no error
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- { // children first
			if e := os.Remove(groups[i]); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("cannot remove a control group: %w", e))
			}
		}
	}
	return err
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return os.Rename(fresh, path)
}
