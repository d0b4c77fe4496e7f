package outlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// notifier tells subscribers when a file was written to. It holds one inotify
// instance with one reader goroutine, however many subscribers there are; a
// file is watched only while somebody wants to know.
type notifier struct {
	file   *os.File
	fd     int // of file; used only under mu and while not closed
	dir    string
	logger *slog.Logger
	ended  chan struct{} // closed when the reader goroutine is over

	mu     sync.Mutex
	closed bool
	subs   map[int32]map[*subscription]struct{} // by watch descriptor
	folder int32                                // watch descriptor of dir, while there are subscriptions
}

type subscription struct {
	name  string // of the file in dir
	watch int32
	wake  chan struct{} // capacity 1: wake-ups that nobody took yet are one
}

func newNotifier(dir string, logger *slog.Logger) (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("cannot make an inotify instance (raise fs.inotify.max_user_instances, or the limit of open files): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make an inotify instance: %w", err)
	}
	n := &notifier{
		file:   os.NewFile(uintptr(fd), "inotify"),
		fd:     fd,
		dir:    dir,
		logger: logger,
		ended:  make(chan struct{}),
		subs:   map[int32]map[*subscription]struct{}{},
	}
	go n.run()
	return n, nil
}

// close ends the reader goroutine and waits for it.
func (n *notifier) close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	err := n.file.Close()
	n.mu.Unlock()
	<-n.ended
	if err != nil {
		return fmt.Errorf("cannot close the inotify instance: %w", err)
	}
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
	if err := n.watchFolder(); err != nil {
		return nil, err
	}
	// The watch belongs to the inode: a second call for one file gives the
	// same descriptor.
	watch, err := n.add(filepath.Join(n.dir, name), unix.IN_MODIFY)
	if err != nil {
		n.leaveFolder()
		return nil, err
	}
	sub := &subscription{name: name, watch: watch, wake: make(chan struct{}, 1)}
	if n.subs[sub.watch] == nil {
		n.subs[sub.watch] = map[*subscription]struct{}{}
	}
	n.subs[sub.watch][sub] = struct{}{}
	return sub, nil
}

func (n *notifier) add(path string, events uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(n.fd, path, events)
	if errors.Is(err, unix.ENOSPC) {
		return 0, fmt.Errorf("cannot watch %s (raise fs.inotify.max_user_watches): %w", path, err)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot watch %s: %w", path, err)
	}
	return int32(wd), nil
}

// watchFolder begins to look for files that appear. The lock is held.
func (n *notifier) watchFolder() (err error) {
	if n.folder == 0 { // the kernel counts from 1
		n.folder, err = n.add(n.dir, unix.IN_CREATE|unix.IN_MOVED_TO)
	}
	return err
}

// leaveFolder ends that where nobody wants to know. The lock is held.
func (n *notifier) leaveFolder() {
	if len(n.subs) == 0 && n.folder != 0 {
		n.drop(n.folder)
		n.folder = 0
	}
}

func (n *notifier) drop(watch int32) {
	if n.closed {
		return
	}
	// EINVAL: the file was deleted, and the kernel dropped the watch with it.
	if _, err := unix.InotifyRmWatch(n.fd, uint32(watch)); err != nil && !errors.Is(err, unix.EINVAL) {
		n.logger.Warn("cannot drop the watch of a log file", "error", err)
	}
}

// unsubscribe may be called more than once.
func (n *notifier) unsubscribe(sub *subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.subs[sub.watch][sub]; !ok {
		return
	}
	delete(n.subs[sub.watch], sub)
	if len(n.subs[sub.watch]) > 0 {
		return
	}
	delete(n.subs, sub.watch)
	n.drop(sub.watch)
	n.leaveFolder()
}

func (n *notifier) run() {
	defer close(n.ended)
	buf := make([]byte, 256*unix.SizeofInotifyEvent) // more than one event with the longest name
	for {
		size, err := n.file.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			n.logger.Error("cannot read from inotify, logs cannot be followed any more", "error", err)
			return
		}
		n.dispatch(buf[:size])
	}
}

// dispatch takes the events of one read apart; see inotify(7) for their form.
func (n *notifier) dispatch(events []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(events[0:4]))
		mask := binary.NativeEndian.Uint32(events[4:8])
		nameLen := binary.NativeEndian.Uint32(events[12:16])
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+int(nameLen)], "\x00"))
		events = events[unix.SizeofInotifyEvent+int(nameLen):]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			for _, subs := range n.subs {
				wake(subs, "")
			}
			continue
		}
		if watch != n.folder {
			wake(n.subs[watch], "")
			continue
		}
		for _, subs := range n.subs {
			wake(subs, name)
		}
	}
}

// wake wakes those of a name; of any, where it is empty.
func wake(subs map[*subscription]struct{}, name string) {
	for sub := range subs {
		if name != "" && name != sub.name {
			continue
		}
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}
