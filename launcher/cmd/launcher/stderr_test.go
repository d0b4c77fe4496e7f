package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// startPiped runs serve with a pipe as its standard error, and reads that until it serves.
func startPiped(t *testing.T, command []string) (d *daemonProcess, read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	stateDir := t.TempDir()
	cmd := exec.Command(filepath.Join(bin, "launcher"), append(append([]string{}, command...),
		"--listen", address, "--gpus", "simulated:2", "--state-dir", stateDir, "--vllm", filepath.Join(bin, "enginesim"))...)
	cmd.Stderr = write
	require.NoError(t, cmd.Start())
	d = &daemonProcess{t: t, cmd: cmd, address: address, stateDir: stateDir, log: newLines(), code: make(chan int, 1)}
	go func() {
		_ = cmd.Wait()
		d.code <- exitCode(cmd.ProcessState)
	}()
	t.Cleanup(func() {
		read.Close() // whoever still writes to the pipe is let go
		_ = cmd.Process.Signal(syscall.SIGTERM)
		d.await()
		write.Close()
	})
	require.NoError(t, read.SetReadDeadline(time.Now().Add(patience.Wait())))
	for text := make([]byte, 4096); !strings.Contains(d.log.text(), "launcher is serving"); {
		n, err := read.Read(text)
		require.NoError(t, err, d.log.text())
		d.log.read(strings.NewReader(string(text[:n])))
	}
	return d, read, write
}

// fill fills the pipe, so that the next write to it waits.
func fill(t *testing.T, read, write *os.File) {
	t.Helper()
	size, err := unix.FcntlInt(read.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	go func() { _, _ = write.Write(make([]byte, 2*size)) }() // until the pipe is closed
	require.Eventually(t, func() bool {
		n, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
		return err == nil && n == size
	}, patience.Wait(), time.Millisecond)
}

// commands run serve, alone and under init.
var commands = map[string][]string{"serve": {"serve"}, "init": {"init", "--", "serve"}}

func TestLauncherGoesOnWhileNobodyReadsItsLog(t *testing.T) {
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			d, read, write := startPiped(t, command)
			fill(t, read, write)
			d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
			for range 5 {
				d.do("sleep", "a")
				d.do("wake", "a")
			}
			d.do("gpus")
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
			require.Equal(t, exitOK, d.await())
			require.Empty(t, processesWith(t, d.stateDir))
		})
	}
}

func TestLauncherGoesOnWhenTheReaderOfItsLogHasGone(t *testing.T) {
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			d, read, write := startPiped(t, command)
			require.NoError(t, read.Close())
			require.NoError(t, write.Close())
			d.do("run", "--gpu", "0", "--id", "a", "--wait", "m")
			d.do("sleep", "a")
			if name == "init" {
				require.NoError(t, syscall.Kill(serveBelow(t, d), syscall.SIGKILL)) // init logs that
				require.Eventually(t, func() bool { return d.call("wait", "--for", "asleep", "a").code == exitOK }, patience.Wait(), 50*time.Millisecond)
			}
			require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
			require.Equal(t, exitOK, d.await())
		})
	}
}

func TestEnginesDoNotInheritAnIgnoredSignal(t *testing.T) {
	dir := t.TempDir()
	status, engine := filepath.Join(dir, "status"), filepath.Join(dir, "engine")
	script := fmt.Sprintf("#!/bin/sh\ncat /proc/$$/status >'%s'\nexec '%s' \"$@\"\n", status, filepath.Join(bin, "enginesim"))
	require.NoError(t, os.WriteFile(engine, []byte(script), 0o755))
	ignoring := filepath.Join(dir, "ignoring") // as systemd and nohup start a program
	script = fmt.Sprintf("#!/bin/sh\ntrap '' PIPE HUP\nexec '%s' \"$@\"\n", filepath.Join(bin, "launcher"))
	require.NoError(t, os.WriteFile(ignoring, []byte(script), 0o755))
	for name, program := range map[string]string{"caught by the launcher": filepath.Join(bin, "launcher"), "ignored when the launcher starts": ignoring} {
		t.Run(name, func(t *testing.T) {
			d := spawn(t, exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--gpus", "simulated:1", "--state-dir", t.TempDir(), "--vllm", engine))
			d.address = d.awaitServing(0)
			d.do("run", "--gpu", "none", "--wait", "m")
			text, err := os.ReadFile(status)
			require.NoError(t, err)
			found := regexp.MustCompile(`\nSigIgn:\t([0-9a-f]{16})\n`).FindStringSubmatch(string(text))
			require.NotNil(t, found, "%s", text)
			ignored, err := strconv.ParseUint(found[1], 16, 64)
			require.NoError(t, err)
			// Make, for one, has its children ignore signals that are nobody's business here.
			require.Zero(t, ignored&(1<<(syscall.SIGPIPE-1)|1<<(syscall.SIGHUP-1)), "signals %x", ignored)
		})
	}
}
