package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownNamespaces are those of a PID 1, of a cluster or of a node.
func ownNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true,
	}
}

// isolate keeps what this process mounts to itself, and shows the processes of
// its own namespace in /proc.
func isolate(hostname string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("cannot set the host's name: %w", err)
	}
	return run("ip", "link", "set", "lo", "up")
}

func (c *Cluster) log(name string) (*os.File, error) {
	if err := os.MkdirAll(c.path("log"), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of logs: %w", err)
	}
	return os.OpenFile(c.path("log", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}

// begin runs a part of the cluster, with its output in a log. ended is told of
// its end, since a cluster ends with each of its parts; one that [Cluster.Stop]
// has ended is run again when it may be.
func (c *Cluster) begin(ended chan<- error, name string, cmd *exec.Cmd) error {
	return c.beginAgain(ended, name, cmd, func() bool { return false })
}

// beginAgain runs a part as begin does. When the part has ended by itself it calls again,
// and runs the part again if that returns true.
func (c *Cluster) beginAgain(ended chan<- error, name string, cmd *exec.Cmd, again func() bool) error {
	if err := c.launch(name, cmd); err != nil {
		return err
	}
	go func() {
		for {
			err := cmd.Wait()
			if !c.stopped(name) && !again() {
				ended <- fmt.Errorf("%s ended: %w: %s", name, cmp.Or(err, errors.New("exit status 0")), tail(c.path("log", name+".log")))
				return
			}
			cmd = &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, SysProcAttr: cmd.SysProcAttr}
			if err := c.launchAgain(name, cmd); err != nil {
				ended <- err
				return
			}
		}
	}()
	return nil
}

// rareCollections let the Go programs of a cluster use memory in place of processor time,
// which several clusters on one machine lack: at the defaults, an API server collects
// garbage for a fifth of its time.
var rareCollections = []string{"GOGC=300", "GOMEMLIMIT=512MiB"}

// launch starts the process of a part, and writes its number down.
func (c *Cluster) launch(name string, cmd *exec.Cmd) error {
	log, err := c.log(name)
	if err != nil {
		return err
	}
	defer log.Close() // the part has its own copy
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	if cmd.Env == nil {
		cmd.Env = append(os.Environ(), rareCollections...)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	if err := writeJSON(c.pidFile(name), cmd.Process.Pid); err != nil {
		return fmt.Errorf("cannot write down the process of %s: %w", name, err)
	}
	return nil
}

// tail is the end of a log, for an error.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-2048):]))
}

// run runs a short command and gives its output in the error.
func run(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// runAll runs commands, one a line, words parted by blanks.
func runAll(lines string) error {
	for line := range strings.Lines(lines) {
		if words := strings.Fields(line); len(words) > 0 {
			if err := run(words[0], words[1:]...); err != nil {
				return err
			}
		}
	}
	return nil
}

// until tries again every few milliseconds until there is no error, a part of
// the cluster ends, or ctx does.
func until(ctx context.Context, ended <-chan error, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case end := <-ended:
			return end
		case <-ctx.Done():
			return fmt.Errorf("it did not come true in time that %s: %w", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
