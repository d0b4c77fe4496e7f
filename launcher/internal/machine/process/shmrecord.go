package process

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// When a machine runs out of memory, an engine's processes may die all at once, and the
// launcher with them. Then no process tells which shared memory they had mapped. So the launcher
// records that as soon as it can know it: the kernel reports each file that is made in
// /dev/shm, and soon after that the process that has made it has mapped it.

// Times between looks at what is mapped, after a file was made.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 10 * time.Second
)

// followSharedMemory records the shared memory of all trees until the Host is closed.
func (h *Host) followSharedMemory() {
	defer h.watchers.Done()
	watch, err := fsnotify.NewWatcher()
	if err == nil {
		defer watch.Close()
		err = watch.Add(shmFolder)
	}
	if err != nil {
		h.opts.Logger.Warn("cannot watch shared memory; what engines have of it stays when they die together with the launcher", "error", err)
		return
	}
	wait := firstLook
	look := time.NewTimer(wait) // an earlier launcher's engines may have made some
	defer look.Stop()
	for {
		select {
		case event := <-watch.Events:
			if event.Has(fsnotify.Create) && isEngines(event.Name) && wait > firstLook {
				wait = firstLook
				look.Reset(wait)
			}
		case <-watch.Errors: //nolint:errcheck // some events were lost: later ones come
		case <-look.C:
			h.recordSharedMemory()
			if wait *= 5; wait <= lastLook {
				look.Reset(wait)
			}
		case <-h.open.Done():
			return
		}
	}
}

// recordSharedMemory writes down what the trees have mapped now, beside what they had
// mapped before.
func (h *Host) recordSharedMemory() {
	h.mu.Lock()
	trees := slices.DeleteFunc(slices.Collect(maps.Values(h.processes)), func(p *Process) bool { return p == nil })
	h.mu.Unlock()
	for _, p := range trees {
		before := h.recordedSharedMemory(p.name)
		now := maps.Clone(before)
		for _, path := range sharedMemory(statsOf(p.Pids())) {
			if inode, ok := ownInode(path); ok {
				now[path] = inode
			}
		}
		if maps.Equal(before, now) {
			continue
		}
		text, err := json.Marshal(now)
		if err == nil {
			err = errors.Join(os.MkdirAll(h.opts.SharedDir, 0o700), os.WriteFile(h.sharedRecord(p.name), text, 0o600))
		}
		if err != nil {
			h.opts.Logger.Warn("cannot record which shared memory an instance has", "name", p.name, "error", err)
		}
	}
}

func statsOf(pids []int) (stats []procfs.Stat) {
	for _, pid := range pids {
		stats = append(stats, procfs.Stat{PID: pid})
	}
	return stats
}

func (h *Host) sharedRecord(name string) string { return filepath.Join(h.opts.SharedDir, name+".json") }

// recordedSharedMemory returns the recorded files of a tree that are still there, with
// their inodes: another program's file of the same name is not the tree's.
func (h *Host) recordedSharedMemory(name string) map[string]uint64 {
	files := map[string]uint64{}
	if h.opts.SharedDir == "" {
		return files
	}
	text, err := os.ReadFile(h.sharedRecord(name))
	if err != nil || json.Unmarshal(text, &files) != nil || files == nil {
		return map[string]uint64{}
	}
	maps.DeleteFunc(files, func(path string, inode uint64) bool {
		now, ok := ownInode(path)
		return !ok || now != inode || !isEngines(path)
	})
	return files
}

// forgetSharedMemory removes the record of a tree that is gone.
func (h *Host) forgetSharedMemory(name string) error {
	if h.opts.SharedDir == "" {
		return nil
	}
	if err := os.Remove(h.sharedRecord(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ownInode returns the inode of a regular file of our own user.
func ownInode(path string) (inode uint64, ok bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Ino, int(stat.Uid) == os.Geteuid()
}
