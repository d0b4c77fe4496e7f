// Package fswatch waits for changes of files, as the kernel tells of them by inotify. All
// waits of the process on one filesystem share one inotify instance: a user may have few
// (fs.inotify.max_user_instances, often 128), and many instances may end at once. Waits on
// different filesystems share nothing, since a filesystem that does not answer holds up every
// user of an inotify instance.
package fswatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Until watches a file or folder, and returns when done says true: done is called at
// the beginning and after each change. The error is that of ctx, or says why the path
// cannot be watched; then done was not called.
func Until(ctx context.Context, path string, done func() bool) error {
	path = filepath.Clean(path)
	on, err := all.of(path)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", path, err)
	}
	wait, err := on.join(path)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", path, err)
	}
	defer on.leave(path, wait)
	for !done() {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// all are the waits of the process.
var all = filesystems{waits: map[uint64]*waits{}}

// filesystems are the waits by the device number of their filesystem.
type filesystems struct {
	mu    sync.Mutex
	waits map[uint64]*waits
}

// of returns the waits on the filesystem of a path. It asks the filesystem without the lock.
func (f *filesystems) of(path string) (*waits, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var device uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		device = stat.Dev
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits[device] == nil {
		f.waits[device] = &waits{}
	}
	return f.waits[device], nil
}

// waits on one filesystem share an inotify instance. The first one makes it, and the last one
// closes it.
type waits struct {
	mu     sync.Mutex
	shared *shared // nil: nobody waits
}

// shared is an inotify instance, with the goroutine that hands its events on.
type shared struct {
	watcher *fsnotify.Watcher
	ended   chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex
	waits map[string]map[chan struct{}]bool // by the path that is watched
}

// join begins a wait. The channel receives a value when the path has changed. Several
// values that are not received yet become one.
func (w *waits) join(path string) (chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, err
		}
		w.shared = &shared{watcher: watcher, ended: make(chan struct{}), waits: map[string]map[chan struct{}]bool{}}
		go w.shared.run()
	}
	// Each time: the watch of a path that was removed and made again has ended.
	if err := w.shared.watcher.Add(path); err != nil {
		w.closeUnused()
		return nil, err
	}
	return w.shared.add(path), nil
}

// leave ends a wait.
func (w *waits) leave(path string, wait chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.shared.drop(path, wait); last {
		_ = w.shared.watcher.Remove(path) // fails where the path is gone, and its watch with it
	}
	w.closeUnused()
}

// closeUnused closes the inotify instance when nobody waits, and waits for the end of its
// goroutine. The lock is held.
func (w *waits) closeUnused() {
	if !w.shared.empty() {
		return
	}
	_ = w.shared.watcher.Close() // of a descriptor that nobody uses any more
	<-w.shared.ended
	w.shared = nil
}

func (s *shared) add(path string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := make(chan struct{}, 1)
	if s.waits[path] == nil {
		s.waits[path] = map[chan struct{}]bool{}
	}
	s.waits[path][wait] = true
	return wait
}

// drop reports whether it was the last wait for the path.
func (s *shared) drop(path string, wait chan struct{}) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits[path], wait)
	if len(s.waits[path]) > 0 {
		return false
	}
	delete(s.waits, path)
	return true
}

func (s *shared) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits) == 0
}

// run hands events on until the inotify instance is closed.
func (s *shared) run() {
	defer close(s.ended)
	for {
		select {
		case event, open := <-s.watcher.Events:
			if !open {
				return
			}
			s.wake(event.Name, filepath.Dir(event.Name))
		case _, open := <-s.watcher.Errors:
			if !open {
				return
			}
			s.wakeAll() // events were lost
		}
	}
}

// wake wakes the waits for the paths.
func (s *shared) wake(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range paths {
		ring(s.waits[path])
	}
}

func (s *shared) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waits := range s.waits {
		ring(waits)
	}
}

func ring(waits map[chan struct{}]bool) {
	for wait := range waits {
		select {
		case wait <- struct{}{}:
		default:
		}
	}
}
