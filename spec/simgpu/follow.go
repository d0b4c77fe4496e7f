package simgpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// told is what inotify(7) tells of when it happens in a GPU's folder.
const told = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// follower hears from the kernel in which folders something has changed. The lock
// of what was seen guards it.
type follower struct {
	fd      int              // of inotify
	folders map[int32]string // UUID of the GPU, by watch
	same    map[string]bool  // by UUID: nothing has changed since the last look began
	events  [16 << 10]byte   // room for many, and for one with the longest name
}

// Follow has the kernel tell what changes in the folders, until Close, so that
// looks read again only the folder of a GPU in which something has changed. It is
// for a process that looks often, since an inotify instance is taken for it, of
// which a user has few, and one whose folder stays where it is. On error looks go
// on as before.
func (d *Dir) Follow() error {
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	if d.seen.follower != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot follow the simulated GPUs in %s: %w", d.path, err)
	}
	d.seen.follower = &follower{fd: fd, folders: map[int32]string{}, same: map[string]bool{}}
	return nil
}

// unchanged says whether nothing has changed in the folder of a GPU since the last
// look began. If not, the next look begins now. Where the kernel cannot tell, the
// answer is no.
func (f *follower) unchanged(uuid, folder string) bool {
	if f == nil {
		return false
	}
	f.hear()
	if f.same[uuid] {
		return true
	}
	watch, err := unix.InotifyAddWatch(f.fd, folder, told) // the same again where there is one
	if err == nil {
		f.folders[int32(watch)] = uuid
		f.same[uuid] = true
	}
	return false
}

// hear takes in what the kernel has told meanwhile.
func (f *follower) hear() {
	for {
		n, err := unix.Read(f.fd, f.events[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			clear(f.same)
		}
		if err != nil || n <= 0 {
			return
		}
		f.take(f.events[:n])
	}
}

func (f *follower) take(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		watch, mask := int32(binary.NativeEndian.Uint32(events[0:])), binary.NativeEndian.Uint32(events[4:])
		name := events[unix.SizeofInotifyEvent:][:binary.NativeEndian.Uint32(events[12:])]
		events = events[unix.SizeofInotifyEvent+len(name):]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			clear(f.same) // events were lost
		case bytes.HasPrefix(name, []byte{'.'}): // this package's own, which hold nothing
		default:
			delete(f.same, f.folders[watch])
		}
		if mask&unix.IN_IGNORED != 0 { // the folder is gone, and the watch with it
			delete(f.folders, watch)
		}
	}
}

// forget has the next look read the folder of a GPU again.
func (f *follower) forget(uuid string) {
	if f != nil {
		delete(f.same, uuid)
	}
}

func (f *follower) close() {
	if f != nil {
		_ = unix.Close(f.fd)
	}
}
