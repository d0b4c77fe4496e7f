package simgpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ticksPerSecond is the unit of start times in /proc: USER_HZ, 100 on
	// every architecture that Go and Linux share.
	ticksPerSecond = 100
	// ageSlack is how much older than its process a file may look: the clocks
	// behind the two ages are not the same.
	ageSlack = 2 * time.Second
	// settled is how much older than a look a file must be to be known by its time
	// of change: who writes twice within one tick of the clock leaves one time.
	settled = 100 * time.Millisecond
	// longestText is more than two numbers and what stands between them can take.
	longestText = 64
)

// seen keeps, by GPU and name of the file, what the last look found: a file that
// is the same still is not read again, and of a process that was alive nothing
// is asked but whether it has ended. A hundred engines have a hundred files.
type seen struct {
	mu sync.Mutex
	of map[string]map[string]*file

	last     map[string][]*file // by GPU, what the last look found
	looks    uint64
	follower *follower // nil: each look reads the folder
}

// file is what a process wrote, and that process.
type file struct {
	name  string
	pid   int
	fd    int // kept open, so that no other file is given its inode
	info  unix.Stat_t
	read  time.Time
	bytes uint64
	until time.Time
	kept  uint64 // the look that found it last

	pidfd int       // of that process alone, whoever has its number next; -1: there is none
	began time.Time // at the latest

	foreign bool // the process is of another PID namespace
	locked  bool // and held its file locked at the last look
}

// Close gives back what was kept open of the processes that hold memory, and ends
// Follow. What
// this process holds counts no more in other PID namespaces. The Dir can still be
// used.
func (d *Dir) Close() error {
	d.locks.close()
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	d.seen.follower.close()
	d.seen.follower = nil
	for uuid := range d.seen.of {
		d.seen.keep(uuid, nil)
	}
	return nil
}

// read gives what the file name of process pid says, nil when it was given back
// since the folder was listed. known is what was read of it before; nil: nothing.
// The lock is held. It makes its system calls itself: package os takes three times
// as long for a file of a few bytes.
func (s *seen) read(uuid string, folder *os.File, name string, pid int, foreign bool, known *file) (*file, error) {
	f, err := readFile(folder, name, pid, foreign)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file, nothing wrong
	}
	if err != nil {
		return nil, err
	}
	if s.of == nil {
		s.of = map[string]map[string]*file{}
	}
	if s.of[uuid] == nil {
		s.of[uuid] = map[string]*file{}
	}
	if known != nil {
		f.pidfd, f.began, known.pidfd = known.pidfd, known.began, -1
		known.close()
	}
	s.of[uuid][name] = f
	return f, nil
}

func readFile(folder *os.File, name string, pid int, foreign bool) (*file, error) {
	fd, err := openAt(folder, name)
	if err != nil {
		return nil, err
	}
	f := &file{name: name, pid: pid, fd: fd, pidfd: -1, foreign: foreign}
	if err := errors.Join(f.parse(), f.look(folder)); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func openAt(folder *os.File, name string) (int, error) {
	for {
		fd, err := unix.Openat(int(folder.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (f *file) parse() error {
	f.read = time.Now()
	if err := unix.Fstat(f.fd, &f.info); err != nil {
		return err
	}
	var text [longestText + 1]byte
	n, err := unix.Pread(f.fd, text[:], 0)
	if err != nil {
		return err
	}
	f.bytes, f.until, err = parse(string(text[:n]))
	return err
}

// unchanged says whether nobody wrote to the file, took its name away or gave that
// to another since it was read: each changes its ctime (inode(7)). It asks the
// open file, which takes a third of the time of a look by name.
func (f *file) unchanged() bool {
	var info unix.Stat_t
	err := unix.Fstat(f.fd, &info)
	return err == nil && info.Ctim == f.info.Ctim && f.read.Sub(time.Unix(f.info.Ctim.Unix())) > settled
}

func (f *file) written() time.Time { return time.Unix(f.info.Mtim.Unix()) }

// wroteAlive says whether the process that wrote the file lives: there is one
// of that number, it is no zombie, and it is not younger than the file. One of
// another PID namespace keeps its file locked.
func (f *file) wroteAlive() bool {
	if f.foreign {
		return f.locked
	}
	return f.pidfd >= 0 && !f.written().Before(f.began)
}

func (f *file) close() {
	_ = unix.Close(f.fd)
	if f.pidfd >= 0 {
		_ = unix.Close(f.pidfd)
	}
}

// whoLives finds the process of each file that has none, and looks whether the
// others have ended.
func whoLives(files []*file) error {
	for _, f := range files {
		if f.pidfd < 0 && !f.foreign {
			f.find()
		}
	}
	fds := make([]unix.PollFd, len(files))
	for n, f := range files {
		fds[n] = unix.PollFd{Fd: int32(f.pidfd), Events: unix.POLLIN} // -1 is passed over
	}
	if err := poll(fds); err != nil {
		return fmt.Errorf("cannot ask which processes live: %w", err)
	}
	for n, f := range files {
		if fds[n].Revents != 0 {
			_ = unix.Close(f.pidfd)
			f.pidfd = -1
			f.find() // another process may have its number by now
		}
	}
	return nil
}

func poll(fds []unix.PollFd) error {
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// find looks for the process of that number; a zombie is none.
func (f *file) find() {
	pidfd, err := unix.PidfdOpen(f.pid, 0)
	if err != nil {
		return
	}
	age, alive := processAge(f.pid)
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	if !alive || poll(fds) != nil || fds[0].Revents != 0 { // else pidfd and age are of one process
		_ = unix.Close(pidfd)
		return
	}
	f.pidfd, f.began = pidfd, time.Now().Add(-age-ageSlack)
}

// keep drops all files but those. The lock is held.
func (s *seen) keep(uuid string, files []*file) {
	s.looks++
	for _, f := range files {
		f.kept = s.looks
	}
	for name, f := range s.of[uuid] {
		if f.kept != s.looks {
			f.close()
			delete(s.of[uuid], name)
		}
	}
	if s.last == nil {
		s.last = map[string][]*file{}
	}
	s.last[uuid] = files
}

// processAge is for how long the process has lived; alive is false when it is
// gone or a zombie. See proc_pid_stat(5): the state is the first field after
// the command, which stands in parentheses and may hold any byte, and the
// start time, in ticks since boot, is the twentieth.
func processAge(pid int) (age time.Duration, alive bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0, false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, false
	}
	started := time.Duration(ticks) * (time.Second / ticksPerSecond)
	return time.Duration(now.Nano()) - started, true
}
