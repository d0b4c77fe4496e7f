package guide

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/harness"
)

const (
	root = "../.."
	// programs names the folder of the programs under test, for the process with the
	// network of its own.
	programs = "HOTSEAT_TEST_GUIDE_PROGRAMS"
)

func TestMain(m *testing.M) {
	if os.Getenv(programs) == "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(os.Getenv(programs))
	os.Exit(code)
}

// prepare builds the programs. The pages have fixed ports, so root then runs the tests
// again, as the same process, in a network of its own, where nobody else has these ports.
func prepare() error {
	dir, err := harness.Folder("hotseat-guide-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the programs: %w", err)
	}
	if err := harness.Build(context.Background(), root, dir, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch", "test/enginesim"); err != nil {
		return err
	}
	if err := os.Setenv(programs, dir); err != nil || os.Geteuid() != 0 {
		return err
	}
	runtime.LockOSThread() // the thread that enters the network becomes the process
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot make a network: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	return fmt.Errorf("cannot run the tests again: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a socket: %w", err)
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("cannot name the loopback interface: %w", err)
	}
	loopback.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("cannot start the loopback interface: %w", err)
	}
	return nil
}

// checkout makes what a reader has after `make build`: the programs in bin/, and the
// examples.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.Symlink(os.Getenv(programs), filepath.Join(dir, "bin")),
		os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root, "examples"))),
		os.Chmod(filepath.Join(dir, "examples", "model-source", "tarred.py"), 0o755), // CopyFS keeps no such bits
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// environment is that of a reader, with an empty home. curl fails where it is answered
// with an error, so that no such answer passes for a success.
func environment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("fail-with-body\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "HOTSEAT_") && !strings.HasPrefix(v, "XDG_") {
			env = append(env, v)
		}
	}
	return env
}
