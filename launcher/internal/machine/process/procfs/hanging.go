package procfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A process that hangs in a driver or on a disk may hang those who read its files in /proc:
// environ, cmdline and maps while it has its memory locked, and stat too while it is in the
// middle of execve(2). So each of these is read by a goroutine that ends with the kernel's
// answer. Its status file can be read always.

// ErrHangs says that the kernel does not answer for a process.
var ErrHangs = errors.New("the kernel does not answer for the process: it hangs in a driver or on a disk")

// answerTime is how long one read may take. It takes microseconds when the process is well.
const answerTime = time.Second

// hanging has the files whose reads take too long, until they end.
var hanging = struct {
	sync.Mutex
	paths map[string]bool
}{paths: map[string]bool{}}

// readMemory reads a file that shows the memory of a process. The error is ErrHangs if the
// kernel does not answer in time, and at once while an earlier read still waits.
func readMemory(pid int, file string) ([]byte, error) {
	return readWithin(fmt.Sprintf("/proc/%d/%s", pid, file), answerTime)
}

// readWithin reads a file in a goroutine that ends with the kernel's answer.
func readWithin(path string, limit time.Duration) ([]byte, error) {
	hanging.Lock()
	hangs := hanging.paths[path]
	hanging.Unlock()
	if hangs {
		return nil, ErrHangs
	}
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := os.ReadFile(path)
		read <- result{text, err}
		hanging.Lock()
		defer hanging.Unlock()
		delete(hanging.paths, path)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-read:
		return r.text, r.err
	case <-timer.C:
	}
	hanging.Lock()
	defer hanging.Unlock()
	select {
	case r := <-read: // just now
		return r.text, r.err
	default:
		hanging.paths[path] = true
		return nil, ErrHangs
	}
}

// statRead is the stat of the nth of some processes.
type statRead struct {
	n    int
	stat Stat
	err  error // ErrHangs: the kernel does not answer in time
}

// readStats reads the stat files of processes, one after the other, in one goroutine. If a
// process hangs, another goroutine goes on with the others.
func readStats(pids []int) []statRead {
	var next int // with over, guarded by the lock of hanging
	over := make([]bool, len(pids))
	answers := make(chan statRead, len(pids))
	work := func() {
		buf := make([]byte, 1024)
		for {
			hanging.Lock()
			n := next
			next++
			hangs := n < len(pids) && hanging.paths[statFile(pids[n])]
			hanging.Unlock()
			switch {
			case n >= len(pids):
				return
			case hangs:
				answers <- statRead{n: n, err: ErrHangs}
				continue
			}
			stat, err := read(pids[n], buf)
			answers <- statRead{n, stat, err}
			hanging.Lock()
			over[n] = true
			delete(hanging.paths, statFile(pids[n]))
			hanging.Unlock()
		}
	}
	go work()
	var all []statRead
	answered := make([]bool, len(pids))
	silence := time.NewTicker(answerTime)
	defer silence.Stop()
	for before := 0; len(all) < len(pids); {
		select {
		case a := <-answers:
			if !answered[a.n] {
				answered[a.n] = true
				all = append(all, a)
			}
			continue
		case <-silence.C:
		}
		if len(all) > before {
			before = len(all)
			continue
		}
		hanging.Lock()
		for n := range min(next, len(pids)) {
			if !answered[n] && !over[n] {
				hanging.paths[statFile(pids[n])] = true
				answered[n] = true
				all = append(all, statRead{n: n, err: ErrHangs})
			}
		}
		hanging.Unlock()
		go work()
	}
	return all
}

func statFile(pid int) string { return fmt.Sprintf("/proc/%d/stat", pid) }

// hung returns what can be known of a process that hangs; os.ErrNotExist when it has ended.
func hung(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Stat{}, gone(err)
	}
	s := Stat{PID: pid, Hangs: true}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "State":
			s.State = value[0]
		case "PPid":
			s.PPID, err = strconv.Atoi(value)
		case "Threads":
			s.Threads, err = strconv.Atoi(value)
		}
		if err != nil {
			return Stat{}, fmt.Errorf("cannot read the status of process %d: %w", pid, err)
		}
	}
	if s.Session, err = unix.Getsid(pid); err != nil {
		return Stat{}, gone(err)
	}
	return s, nil
}
