package outlog

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// notifier tells subscribers when a file of a folder was written to, or when
// another file got its name. The folder is watched only while there are
// subscriptions.
type notifier struct {
	watcher *fsnotify.Watcher
	dir     string
	logger  *slog.Logger
	ended   chan struct{} // closed when the goroutine of run has ended

	mu     sync.Mutex
	closed bool
	subs   map[string]map[*subscription]struct{} // by the name of the file
}

// anyLog is the name of a subscription for all files.
const anyLog = ""

type subscription struct {
	name string        // of the file
	wake chan struct{} // capacity 1: several wake-ups that are not received yet become one
}

func newNotifier(dir string, logger *slog.Logger) (*notifier, error) {
	watcher, err := fsnotify.NewWatcher()
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("cannot make an inotify instance (raise fs.inotify.max_user_instances, or the limit of open files): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make an inotify instance: %w", err)
	}
	n := &notifier{watcher: watcher, dir: dir, logger: logger, ended: make(chan struct{}), subs: map[string]map[*subscription]struct{}{}}
	go n.run()
	return n, nil
}

// close ends the goroutine of run, and waits for its end.
func (n *notifier) close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	if err := n.watcher.Close(); err != nil {
		return fmt.Errorf("cannot close the inotify instance: %w", err)
	}
	<-n.ended
	return nil
}

// subscribe wakes the subscription at every write to the file from now on, and
// whenever another file gets its name.
func (n *notifier) subscribe(name string) (*subscription, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	// Each time: the watch of a folder that was removed and made again has ended.
	if err := n.watcher.Add(n.dir); errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("cannot watch %s (raise fs.inotify.max_user_watches): %w", n.dir, err)
	} else if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", n.dir, err)
	}
	sub := &subscription{name: name, wake: make(chan struct{}, 1)}
	if n.subs[name] == nil {
		n.subs[name] = map[*subscription]struct{}{}
	}
	n.subs[name][sub] = struct{}{}
	return sub, nil
}

// unsubscribe ends a subscription. A second call does nothing.
func (n *notifier) unsubscribe(sub *subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.subs[sub.name][sub]; !ok {
		return
	}
	delete(n.subs[sub.name], sub)
	if len(n.subs[sub.name]) > 0 {
		return
	}
	delete(n.subs, sub.name)
	if len(n.subs) > 0 || n.closed {
		return
	}
	if err := n.watcher.Remove(n.dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		n.logger.Warn("cannot end the watch of the folder of logs", "error", err)
	}
}

// run hands events on until the watcher is closed.
func (n *notifier) run() {
	defer close(n.ended)
	for {
		select {
		case event, open := <-n.watcher.Events:
			if !open {
				return
			}
			if event.Has(fsnotify.Write | fsnotify.Create) {
				n.wake(filepath.Base(event.Name))
			}
		case err, open := <-n.watcher.Errors:
			if !open {
				return
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				n.logger.Error("cannot read from inotify", "error", err)
			}
			n.wakeAll()
		}
	}
}

// wake wakes the subscriptions of a file, and those of all files.
func (n *notifier) wake(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range []string{name, anyLog} {
		for sub := range n.subs[name] {
			sub.ring()
		}
	}
}

// wakeAll wakes all subscriptions: events may have been lost.
func (n *notifier) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, subs := range n.subs {
		for sub := range subs {
			sub.ring()
		}
	}
}

func (s *subscription) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
