package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/initd"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// play plays a role in a child; what it says goes to fd 1.
func play(role []string) {
	switch role[0] {
	case "exit":
		code, _ := strconv.Atoi(role[1])
		os.Exit(code)
	case "wait":
		rest("ready")
	case "graceful":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		rest("ready")
	case "describe":
		describe()
	case "eat":
		if len(role) == 1 {
			awaitHunger()
		}
		eat()
	case "parent": // parent KIND: a worker of that kind, then rest
		spawn(role[1])
		rest("ready")
	case "work":
		if len(role) > 1 {
			signal.Ignore(syscall.SIGTERM)
		}
		rest("working")
	case "finish": // does not end at once when it is told to
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("working")
		<-asked
		time.Sleep(time.Second)
		fmt.Println("finished", "in order")
		os.Exit(0)
	case "sharer": // sharer NAME…: has those files of shared memory mapped
		share(role[1:])
	case "tracked": // tracked NAME: has that shared memory, not mapped, and one who removes it
		beTracked(role[1])
	case "tracker":
		track(role[1])
	case "settler":
		settle()
	case "leaver": // double fork: the one in between
		spawn(role[1])
		os.Exit(0)
	case "respawner":
		respawn()
	case "frozen": // frozen PATH
		beFrozen(role[1])
	case "locked": // locked PATH
		beLocked(role[1])
	case "cramped":
		playCramped(role[1:])
	case "launcher":
		playLauncher(role[1:])
	case "serve":
		playServe(role)
	case "init":
		playInit(role)
	}
}

func beTracked(name string) {
	reader, writer, err := os.Pipe()
	if err == nil {
		err = os.WriteFile(filepath.Join("/dev/shm", name), []byte("x"), 0o600)
	}
	if err == nil {
		_, _, err = syscall.StartProcess("/proc/self/exe", []string{"python", "-c", "from multiprocessing.resource_tracker import main;main(3)"}, &syscall.ProcAttr{
			Env: cast(os.Environ(), "tracker "+name), Files: []uintptr{reader.Fd(), 1, 2},
		})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	reader.Close()
	time.Sleep(5 * time.Minute)
	writer.Close()
}

// track removes shared memory when all that could use it have ended.
func track(name string) {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = os.Remove(filepath.Join("/dev/shm", name))
	os.Exit(0)
}

// settle makes a socket in the folder that it was told of.
func settle() {
	path := filepath.Join(os.Getenv("A_FOLDER"), "0d9af1cf-2f0c-4f7e-9a3e-2c0bb5b4f1de")
	if _, err := net.Listen("unix", path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("socket", path)
	rest("ready")
}

func share(names []string) {
	for _, name := range names {
		f, err := os.Create("/dev/shm/" + name)
		if err == nil {
			err = f.Truncate(4096)
		}
		if err == nil {
			_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	rest("ready")
}

func rest(word string) {
	fmt.Println(word)
	time.Sleep(5 * time.Minute)
}

func describe() {
	session, _ := unix.Getsid(0)
	null, _ := os.Readlink("/proc/self/fd/0")
	fds, _ := os.ReadDir("/proc/self/fd")
	var marks []string
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "HOTSEAT_INSTANCE=") || strings.HasPrefix(variable, "HOTSEAT_LAUNCHER=") {
			marks = append(marks, variable)
		}
	}
	dir, _ := os.Getwd()
	open := slices.DeleteFunc(fds, func(e os.DirEntry) bool {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/") // the Go runtime's own
	})
	fmt.Println("leader", session == os.Getpid())
	fmt.Println("stdin", null)
	fmt.Println("files", len(open))
	fmt.Println("marks", strings.Join(marks, " "))
	fmt.Println("folder", dir)
	fmt.Fprintln(os.Stderr, "ready")
	time.Sleep(5 * time.Minute)
}

func awaitHunger() {
	hungry := make(chan os.Signal, 1)
	signal.Notify(hungry, syscall.SIGUSR1)
	fmt.Println("ready")
	<-hungry
}

// eat takes a gigabyte of memory.
func eat() {
	var held [][]byte
	for range 256 {
		block := make([]byte, 4<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	os.Exit(len(held) % 7)
}

// spawn starts a worker and says its id.
//
//	plain       nothing special
//	group       in a process group of its own
//	session     in a session of its own
//	daemon      in a session of its own, by way of a process that ends at once
//	hidden      as daemon, with an environment that has nothing of ours
//	unmarked    with such an environment
//	child       with such an environment, in a session of its own
//	stubborn    ignores SIGTERM
//	finishing   ends in order some time after a SIGTERM
func spawn(kind string) {
	attr := &syscall.SysProcAttr{}
	role, env := "work", os.Environ()
	switch kind {
	case "group":
		attr.Setpgid = true
	case "session", "child":
		attr.Setsid = true
	case "stubborn":
		role = "work stubbornly"
	case "finishing":
		role = "finish"
	case "daemon", "hidden":
		role = "leaver session"
		attr.Setsid = true
	}
	if kind == "hidden" || kind == "unmarked" || kind == "child" {
		env = nil
	}
	pid, _, err := syscall.StartProcess("/proc/self/exe", []string{"worker"}, &syscall.ProcAttr{
		Env: cast(env, role), Files: []uintptr{0, 1, 2}, Sys: attr,
	})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(98)
	}
	if role == "leaver session" {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return // the one in between has said the worker's id
	}
	fmt.Println("worker", pid)
}

// respawn keeps 50 workers, and starts another for each that ends.
func respawn() {
	signal.Ignore(syscall.SIGTERM)
	start := func() {
		_, _, err := syscall.StartProcess("/bin/sleep", []string{"sleep", "300"}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			os.Exit(97)
		}
	}
	for range 50 {
		start()
	}
	fmt.Println("ready")
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == nil {
			start()
		}
	}
}

// launcher is the Host of a role: MARK MODE EXITDIR.
func launcher(role []string, exitDir string) *host {
	h := &host{mark: role[0], mode: cgroup.Mode(role[1]), exitDir: exitDir, recordWait: patience.Wait()}
	if err := h.open(); err != nil {
		fail(err)
	}
	return h
}

// playLauncher starts an instance of two processes, and waits to be killed.
func playLauncher(role []string) {
	h := launcher(role, role[2])
	c := command("a", "parent session")
	c.Output = os.Stdout
	p, err := h.Start(c)
	if err != nil {
		fail(err)
	}
	id, _ := json.Marshal(p.ID())
	fmt.Println("id", string(id))
	time.Sleep(5 * time.Minute)
}

// playCramped goes into a memory group, and tells of an instance that is killed in it.
func playCramped(role []string) {
	if err := os.WriteFile(role[3]+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		fail(err)
	}
	h := launcher(role, role[2])
	for _, role := range []string{"eat now", "wait"} {
		p, err := h.Start(command("a", role))
		if err != nil {
			fail(err)
		}
		if role == "wait" {
			_ = p.Signal(syscall.SIGKILL)
		}
		<-p.Done()
		fmt.Println("signal", int(p.Exit().Signal), "oom", p.Exit().OOMKilled)
		if err := p.Kill(context.Background()); err != nil {
			fail(err)
		}
	}
	p, err := h.Start(command("a", "wait"))
	if err != nil {
		fail(err)
	}
	glutton := exec.CommandContext(context.Background(), "/proc/self/exe")
	glutton.Env = cast(os.Environ(), "eat now")
	_ = glutton.Run()
	if err := p.Kill(context.Background()); err != nil {
		fail(err)
	}
	fmt.Println("signal", int(p.Exit().Signal), "oom", p.Exit().OOMKilled)
	_ = h.Close()
	_ = h.groups.Close()
	os.Exit(0)
}

// playInit runs serve under init.
func playInit(role []string) {
	_ = os.Setenv(roleVariable, "serve "+strings.Join(role[1:], " "))
	code, err := initd.Run(context.Background(), initd.Options{ExitDir: role[3], Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fail(err)
	}
	os.Exit(code)
}

// playServe starts an instance, or adopts the one that is there, and tells its exit.
func playServe(role []string) {
	h := launcher(role[1:], os.Getenv(initd.ExitDirEnv))
	found, err := h.Find()
	if err != nil {
		fail(err)
	}
	fmt.Println("serve", os.Getpid())
	if len(found) == 0 {
		c := command("a", "wait")
		c.Output = os.Stdout
		if _, err := h.Start(c); err != nil {
			fail(err)
		}
		time.Sleep(5 * time.Minute)
	}
	p, err := h.Adopt(found[0].Name, found[0].Root)
	if err != nil {
		fail(err)
	}
	fmt.Println("adopted", p.ID().PID)
	<-p.Done()
	fmt.Println("exit", *p.Exit().Code)
	if err := p.Kill(context.Background()); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Println("failed", err)
	os.Exit(98)
}
