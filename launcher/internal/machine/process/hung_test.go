package process_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// frozen is a filesystem (FUSE) of one file, which is the mount point. A process that
// has asked it something is in uninterruptible sleep until it answers: SIGKILL does not end that.
type frozen struct {
	t      *testing.T
	device *os.File
	path   string
	thawed sync.Once
}

// Questions of the kernel to a filesystem; see its include/uapi/linux/fuse.h.
const (
	fuseOpen  = 14
	fuseFlush = 25
	fuseInit  = 26
)

func freeze(t *testing.T) *frozen {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		err = unix.Mount("frozen", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100600,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid()))
	}
	if err != nil {
		t.Skipf("NOT TESTED: no filesystem can be mounted here that does not answer: %v", err)
	}
	f := &frozen{t: t, device: os.NewFile(uintptr(fd), "/dev/fuse"), path: path}
	t.Cleanup(f.thaw)
	init := make([]byte, 64) // struct fuse_init_out
	binary.NativeEndian.PutUint32(init, 7)
	binary.NativeEndian.PutUint32(init[4:], 31)
	binary.NativeEndian.PutUint32(init[20:], 4096)
	f.answer(f.asked(fuseInit), init)
	return f
}

// asked waits until the kernel asks the filesystem that, and returns the id of the question.
func (f *frozen) asked(question uint32) (id uint64) {
	f.t.Helper()
	require.NoError(f.t, f.device.SetReadDeadline(time.Now().Add(patience.Wait())))
	header := make([]byte, 64<<10) // struct fuse_in_header, and more
	_, err := f.device.Read(header)
	require.NoError(f.t, err)
	require.Equal(f.t, question, binary.NativeEndian.Uint32(header[4:]))
	return binary.NativeEndian.Uint64(header[8:])
}

func (f *frozen) answer(id uint64, body []byte) {
	f.t.Helper()
	header := make([]byte, 16) // struct fuse_out_header
	binary.NativeEndian.PutUint32(header, uint32(len(header)+len(body)))
	binary.NativeEndian.PutUint64(header[8:], id)
	_, err := f.device.Write(append(header, body...))
	require.NoError(f.t, err)
}

// thaw ends the filesystem: the kernel answers all questions with an error.
func (f *frozen) thaw() {
	f.thawed.Do(func() {
		assert.NoError(f.t, unix.Unmount(f.path, unix.MNT_FORCE|unix.MNT_DETACH))
		assert.NoError(f.t, f.device.Close())
	})
}

// beFrozen is in uninterruptible sleep until the filesystem of the file answers.
func beFrozen(path string) {
	_, _ = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	rest("thawed")
}

// beLocked hangs in execve(2), which closes the file, with its memory locked: the kernel
// shows its environment to no process until the filesystem of the file answers.
func beLocked(path string) {
	_, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, cast(os.Environ(), "wait"))
	}
	fmt.Println(err)
}

// hang waits until a process is in uninterruptible sleep that plays beFrozen or beLocked.
func (f *frozen) hang(role string) {
	f.t.Helper()
	open := f.asked(fuseOpen)
	if role == "locked" {
		f.answer(open, make([]byte, 16)) // struct fuse_open_out
		f.asked(fuseFlush)
	}
}

func TestTreeThatHangsInTheKernelIsNotGone(t *testing.T) {
	for _, mode := range modes {
		for _, role := range []string{"frozen", "locked"} {
			if role == "locked" && mode != cgroup.None {
				continue // no group tells which tree it belongs to
			}
			t.Run(string(mode)+" "+role, func(t *testing.T) {
				h := newHost(t, mode)
				fs := freeze(t)
				c := h.begin(t, command("a", role+" "+fs.path))
				fs.hang(role)
				other := h.begin(t, command("b", "wait"))
				other.says("ready")

				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					err := c.Stop(ctx, time.Millisecond)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded, "it says that the tree is there")
					require.ErrorContains(t, err, "uninterruptible sleep", "and why")
					require.Contains(t, c.Pids(), c.ID().PID)
				}
				select {
				case <-c.Done():
					require.Fail(t, "the root has not ended")
				default:
				}
				stop(t, other.Process) // others do not wait for it

				fs.thaw()
				require.NoError(t, c.Kill(patient(t)))
				require.False(t, alive(c.ID().PID))
			})
		}
	}
}

func TestStopDoesNotWaitForAProcessWhoseMemoryIsLocked(t *testing.T) {
	h := newHost(t, cgroup.None)
	fs := freeze(t)
	c := h.begin(t, command("a", "wait")) // a stop looks at the processes that began later
	c.says("ready")
	stranger := exec.Command("/proc/self/exe") // it is killed below
	stranger.Env = cast(os.Environ(), "locked "+fs.path)
	require.NoError(t, stranger.Start())
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	t.Cleanup(func() {
		assert.NoError(t, stranger.Process.Kill())
		fs.thaw()
		assert.Error(t, <-ended, "it was killed")
	})
	fs.hang("locked")

	stopsMeanwhile(t, fs, c.Process)
}

// stopsMeanwhile checks that a tree is stopped while the filesystem does not answer.
func stopsMeanwhile(t *testing.T, fs *frozen, p *process.Process) {
	t.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- p.Kill(t.Context()) }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(patience.Wait()):
		fs.thaw()
		require.NoError(t, <-stopped)
		require.Fail(t, "the stop has waited for another process")
	}
	require.False(t, alive(p.ID().PID))
}

func TestStopDoesNotWaitForAStartThatHangs(t *testing.T) {
	h := newHost(t, cgroup.None)
	c := h.begin(t, command("a", "wait"))
	c.says("ready")
	fs := freeze(t)
	started := make(chan error, 1)
	go func() {
		_, err := h.Start(process.Command{Name: "b", Path: fs.path, Args: []string{"b"}})
		started <- err
	}()
	fs.asked(fuseOpen)
	stopsMeanwhile(t, fs, c.Process)
	require.ErrorContains(t, <-started, "the disk that it is on does not answer")
}

func TestRootThatHungWhenItWasFoundIsAdoptedWhenItAnswers(t *testing.T) {
	for _, mode := range modes {
		if mode == cgroup.None {
			continue // nothing tells which tree it belongs to
		}
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			fs := freeze(t)
			id := h.begin(t, command("a", "locked "+fs.path)).ID()
			fs.hang("locked")
			require.NoError(t, h.Close())
			require.NoError(t, h.open())
			found, err := h.Find()
			require.NoError(t, err)
			require.Len(t, found, 1)
			root := found[0].Root
			require.Equal(t, process.ID{PID: id.PID, BootID: id.BootID}, root, "its start time cannot be read")
			_, err = h.Adopt("a", root)
			require.ErrorIs(t, err, procfs.ErrHangs)

			fs.thaw()
			var p *process.Process
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				p, err = h.Adopt("a", root)
				if errors.Is(err, procfs.ErrHangs) {
					assert.NoError(t, err)
				}
			}, patience.Wait(), time.Millisecond)
			require.NoError(t, err)
			require.Equal(t, id, p.ID())
			require.NoError(t, p.Kill(patient(t)))
		})
	}
}
