package simopts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Times is how often a fault hits: the first so many times, or Always.
type Times int

// Always never runs out.
const Always Times = -1

// Take uses one up, and says whether there was one. It is not safe for use by
// several goroutines at once.
func (t *Times) Take() bool {
	switch {
	case *t == Always:
		return true
	case *t > 0:
		*t--
		return true
	}
	return false
}

// Crash is how a process of the tree ends by itself. The zero Crash is none.
type Crash struct {
	Process string // api, core or worker
	Exit    int    // exit code, when Signal is 0
	Signal  syscall.Signal
	After   time.Duration
}

// ParseCrash reads "[PROCESS:]exit:N[@DURATION]" or
// "[PROCESS:]signal:NAME[@DURATION]", such as "exit:3", "signal:SEGV@2s",
// "worker:signal:KILL". PROCESS is api (the default), core or worker.
func ParseCrash(v string) (Crash, error) {
	bad := fmt.Errorf("invalid crash: %q (want [api|core|worker:]exit:N or signal:NAME, then @DURATION if not at once)", v)
	what, after, delayed := strings.Cut(v, "@")
	c := Crash{Process: "api"}
	if delayed {
		d, err := time.ParseDuration(after)
		if err != nil || d < 0 {
			return Crash{}, bad
		}
		c.After = d
	}
	parts := strings.Split(what, ":")
	if len(parts) == 3 {
		c.Process, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 || !slices.Contains([]string{"api", "core", "worker"}, c.Process) {
		return Crash{}, bad
	}
	switch parts[0] {
	case "exit":
		n, err := strconv.Atoi(parts[1])
		if err != nil || n < 0 || n > 255 {
			return Crash{}, bad
		}
		c.Exit = n
	case "signal":
		c.Signal = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(parts[1]), "SIG"))
		if c.Signal == 0 {
			return Crash{}, bad
		}
	default:
		return Crash{}, bad
	}
	return c, nil
}

// Due says whether the crash is one of process, and uses up once when it is:
// the file that all share. An empty once means that it is due every time.
func (c Crash) Due(process, once string) bool {
	return c.Process == process && Once(once)
}

// Once says whether the fault may hit, and remembers in file that it did. An
// empty file means that it always may.
func Once(file string) bool {
	if file == "" {
		return true
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return !errors.Is(err, fs.ErrExist)
	}
	return f.Close() == nil
}

// Now ends this process the way c says, at once. tidy runs before an exit by
// code, as an interpreter's own exit handlers do, and not before a signal.
func (c Crash) Now(tidy func()) {
	time.Sleep(c.After)
	if c.Signal == 0 {
		tidy()
		os.Exit(c.Exit)
	}
	dieBy(c.Signal)
}

// dieBy ends this process by sig. The Go runtime has handlers of its own, which
// would turn some signals into exit code 2, so the default action comes first.
func dieBy(sig syscall.Signal) {
	var dfl struct{ handler, flags, restorer, mask uintptr }
	// The kernel reads the struct during the call; SIGKILL has no handler.
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dfl)), 0, unsafe.Sizeof(dfl.mask), 0, 0)
	// A process may always signal itself.
	_ = syscall.Kill(os.Getpid(), sig)
	select {} // on its way
}
