package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Keep runs the cluster that the folder's configuration describes, until ctx
// ends or a part of the cluster does, and leaves nothing but the logs. It must
// be called on the main thread of a program whose arguments "init DIR" lead to
// [Init].
func Keep(ctx context.Context, dir string) (err error) {
	runtime.LockOSThread() // the kernel ends the cluster's PID 1 with the thread that made it
	var c Config
	if err := readJSON(filepath.Join(dir, configFile), &c); err != nil {
		return fmt.Errorf("cannot read the cluster's configuration: %w", err)
	}
	state := State{Keeper: os.Getpid()}
	defer func() {
		if err != nil {
			state.Ready, state.Failed = false, err.Error()
			err = errors.Join(err, writeJSON(c.path(stateFile), state))
		}
	}()
	slot, err := claimSlot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slot.release()) }()
	if err := slot.remember(c.Dir); err != nil {
		return err
	}
	state.Slot = slot.number
	child, ended, err := c.startInit(slot.network())
	if err != nil {
		return err
	}
	defer func() {
		_ = child.Process.Kill() // it may have ended by itself
		<-ended
		err = errors.Join(err, removeGroups(slot.network().group()), c.tidy())
	}()
	if err := link(slot.network(), child.Process.Pid, c.Nodes); err != nil {
		return err
	}
	state.Init = child.Process.Pid
	if err := writeJSON(c.path(stateFile), state); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case end := <-ended:
		ended <- nil // for the one that waits below
		return fmt.Errorf("the cluster ended: %w%s", end, c.whatInitSaid())
	}
}

// startInit makes the cluster's namespaces with its PID 1 in them.
func (c Config) startInit(net network) (*exec.Cmd, chan error, error) {
	log, err := c.log("init")
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot find this program: %w", err)
	}
	cmd := exec.Command(self, "init", c.Dir, fmt.Sprint(net.slot))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL, Setsid: true,
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("cannot make the cluster's namespaces (that takes root): %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd, ended, nil
}

func (c Config) whatInitSaid() string {
	data, err := os.ReadFile(c.path("log", "init.log"))
	if err != nil || len(data) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(data[max(0, len(data)-4096):]))
}

// link leads from this machine into the cluster, so that the API server, the
// nodes and the Pods can be reached. It goes with the cluster's network.
func link(net network, init, nodes int) error {
	var lines strings.Builder
	fmt.Fprintf(&lines, "ip link add %s type veth peer name machine netns %d\n", net.link(), init)
	fmt.Fprintf(&lines, "ip addr add %s/24 dev %s\n", net.machine(), net.link())
	fmt.Fprintf(&lines, "ip link set %s up\n", net.link())
	for number := 1; number <= nodes; number++ {
		fmt.Fprintf(&lines, "ip route add %s via %s\n", net.pods(number), net.node(number))
	}
	// What no node has leads nowhere, rather than out of this machine.
	fmt.Fprintf(&lines, "ip route replace unreachable %s\n", net.all())
	return runAll(lines.String())
}

// tidy removes what a cluster wrote, but for its configuration, state and logs.
func (c Config) tidy() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("cannot tidy the cluster's folder: %w", err)
	}
	for _, entry := range entries {
		switch entry.Name() {
		case "log", configFile, stateFile:
		default:
			err = errors.Join(err, os.RemoveAll(c.path(entry.Name())))
		}
	}
	return err
}

// slotDir is where keepers of this machine see each other.
const slotDir = "/run/hotseat-cluster"

// slot is a claimed number. The claim is a lock on a file, so it ends with its
// keeper whatever happens; the file says whose folder is to be tidied then.
type slot struct {
	number int
	file   *os.File
}

func (s *slot) network() network { return network{slot: s.number} }

// claimSlot takes the first slot that nobody has, and clears away what its last
// keeper left if that was killed.
func claimSlot() (*slot, error) {
	if err := os.MkdirAll(slotDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of slots: %w", err)
	}
	for number := range Slots {
		file, err := os.OpenFile(filepath.Join(slotDir, fmt.Sprint(number)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cannot claim a slot: %w", err)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = file.Close()
			continue
		}
		s := &slot{number: number, file: file}
		if err := s.sweep(); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return s, nil
	}
	return nil, fmt.Errorf("all %d slots of clusters are taken: end a cluster first", Slots)
}

// sweep removes what a keeper left that could not.
func (s *slot) sweep() error {
	data := make([]byte, 4096)
	n, _ := s.file.ReadAt(data, 0) // an empty file is one that was released
	if n == 0 {
		return nil
	}
	err := removeGroups(s.network().group())
	_ = exec.Command("ip", "route", "del", "unreachable", s.network().all()).Run() // there may be none
	old := Config{Dir: string(data[:n])}
	if _, there := os.Stat(old.Dir); there == nil {
		err = errors.Join(err, old.tidy())
	}
	return err
}

func (s *slot) remember(dir string) error {
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("cannot write down whose slot this is: %w", err)
	}
	if _, err := s.file.WriteAt([]byte(dir), 0); err != nil {
		return fmt.Errorf("cannot write down whose slot this is: %w", err)
	}
	return nil
}

func (s *slot) release() error {
	_ = exec.Command("ip", "route", "del", "unreachable", s.network().all()).Run() // there may be none
	return errors.Join(s.file.Truncate(0), s.file.Close())
}

// removeGroups removes the control groups of a cluster, in each hierarchy.
// Processes that were killed leave their group a moment after their end.
func removeGroups(name string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := removeGroupsOnce(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeGroupsOnce(name string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		return err
	}
	roots = append(roots, "/sys/fs/cgroup/"+name)
	for _, root := range roots {
		var groups []string
		walk := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		err = errors.Join(err, walk)
		for i := len(groups) - 1; i >= 0; i-- { // children first
			if e := os.Remove(groups[i]); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("cannot remove a control group: %w", e))
			}
		}
	}
	return err
}
