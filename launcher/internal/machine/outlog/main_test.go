package outlog_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

// childEnv makes the test binary a child process that does one thing.
const childEnv = "OUTLOG_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "lines":
		childLines()
	case "no-inotify":
		childNoInotify()
	case "full-disk":
		childFullDisk()
	case "no-holes":
		childNoHoles()
	default:
		fmt.Println("unknown child")
		os.Exit(2)
	}
}

// childLines is an engine: it writes so many lines as it is told.
func childLines() {
	n, _ := strconv.Atoi(os.Args[1])
	out := bufio.NewWriterSize(os.Stdout, 100)
	for i := range n {
		_, _ = fmt.Fprintf(out, "line %d\n", i)
	}
	_ = out.Flush()
}

// childNoInotify runs in a user namespace of its own, with limits of its own.
func childNoInotify() {
	dir := os.Args[1]
	limit := func(what, value string) {
		if err := os.WriteFile("/proc/sys/user/"+what, []byte(value), 0); err != nil {
			fmt.Println("limit:", err)
		}
	}
	limit("max_inotify_instances", "0")
	_, err := outlog.Open(outlog.Options{Dir: dir})
	fmt.Println(err)
	limit("max_inotify_instances", "1")
	limit("max_inotify_watches", "0")
	store, err := outlog.Open(outlog.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, name, err := store.Create("a")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = f.Close()
	_, _, err = store.Watch(name)
	fmt.Println(err)
	fmt.Println(store.Follow(context.Background(), name, 0, nil, nil))
	_ = store.Close()
}

// childFullDisk runs in a mount namespace of its own.
func childFullDisk() {
	dir := os.Args[1]
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=3"); err != nil {
		fmt.Println("mount:", err)
		return
	}
	store, err := outlog.Open(outlog.Options{Dir: dir})
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	for range 4 {
		f, name, err := store.Create("a")
		fmt.Println(name, err)
		if err == nil {
			_ = f.Close()
		}
	}
	_ = os.Remove(dir + "/a.1.log")
	f, name, err := store.Create("a")
	fmt.Println(name, err)
	_ = f.Close()
	_ = store.Close()
}

func child(t *testing.T, what string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	// The race detector would let every child wait for a second at its end.
	cmd.Env = append(os.Environ(), childEnv+"="+what, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// inNamespaces gives the child mounts that nobody else sees, and limits of its
// own.
func inNamespaces(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	return cmd
}

func open(t *testing.T, opts outlog.Options) *outlog.Store {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	store, err := outlog.Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// create makes a log that holds the text and returns its name and the engine's
// end of it.
func create(t *testing.T, store *outlog.Store, id, text string) (string, *os.File) {
	t.Helper()
	f, name, err := store.Create(id)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	write(t, f, text)
	return name, f
}

func write(t *testing.T, f *os.File, text string) {
	t.Helper()
	_, err := f.WriteString(text)
	require.NoError(t, err)
}

// watches counts the files that this process watches by inotify.
func watches(t *testing.T) int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fdinfo")
	require.NoError(t, err)
	n := 0
	for _, entry := range dir {
		info, err := os.ReadFile("/proc/self/fdinfo/" + entry.Name())
		if err == nil { // the descriptor of the folder itself is gone by now
			n += strings.Count(string(info), "inotify wd:")
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
