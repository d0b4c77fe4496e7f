package preload

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

// script writes a program.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vllm")
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o700))
	return path
}

// standIn writes an installation of the stand-in, and returns its command.
func standIn(t *testing.T) (dir, command string) {
	t.Helper()
	dir = t.TempDir()
	command, err := pyengine.Install(dir)
	require.NoError(t, err)
	return dir, command
}

// forget takes --uds out of an installation, as in the releases before it.
func forget(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "vllm", "entrypoints", "cli", "main.py")
	require.NoError(t, os.WriteFile(path, []byte("from vllm.engine import main\n"), 0o600))
	at := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(dir, at, at), "as an upgrade changes the folder of packages")
}

func TestSocketsAreFoundInTheInstallation(t *testing.T) {
	dir, command := standIn(t)
	link := filepath.Join(t.TempDir(), "vllm")
	require.NoError(t, os.Symlink(command, link))
	python, err := pyengine.Python()
	require.NoError(t, err)
	for what, program := range map[string][]string{
		"a script": {command}, "a link to it": {link}, "with arguments": {command, "-x"},
		"a program that names the flag": {script(t, "#!/bin/sh\n# takes --uds\n")},
	} {
		s := &Sockets{Program: program}
		assert.NoError(t, s.Lacks(os.Environ()), what)
	}
	module := &Sockets{Program: []string{python, "-m", "vllm.entrypoints.cli.main"}}
	require.NoError(t, module.Lacks(append(os.Environ(), "PYTHONPATH="+dir)))
	require.ErrorContains(t, module.Lacks(os.Environ()), "has no module vllm", "another environment finds another one")
}

func TestSocketsAreNotTakenForGranted(t *testing.T) {
	dir, command := standIn(t)
	s := &Sockets{Program: []string{command}}
	require.NoError(t, s.Lacks(os.Environ()))
	forget(t, dir)
	require.ErrorContains(t, s.Lacks(os.Environ()), "has no --uds; install a newer release", "the installation has changed")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "vllm", "entrypoints")))
	at := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(dir, at, at))
	require.ErrorContains(t, s.Lacks(os.Environ()), "cannot tell whether the vllm in")

	for what, program := range map[string]string{
		"names no interpreter": script(t, "\x7fELF"),
		"names /bin/sh":        script(t, "#!/bin/sh\nexec /opt/vllm/bin/vllm \"$@\"\n"),
		"has no module vllm":   script(t, "#!/usr/bin/env -S python3 -I\n"),
	} {
		err := (&Sockets{Program: []string{program}}).Lacks(os.Environ())
		require.ErrorContains(t, err, "cannot tell whether "+program+" has --uds: ")
		require.ErrorContains(t, err, what)
	}
}

func TestSocketsAreLookedForAgainAfterAFailedLook(t *testing.T) {
	dir, _ := standIn(t)
	python, err := pyengine.Python()
	require.NoError(t, err)
	own := t.TempDir()
	program := filepath.Join(own, "python3")
	require.NoError(t, os.WriteFile(program, []byte(`#!/bin/sh
cd `+own+`
echo >> runs
[ -e works ] || exit 1
[ -e touched ] || touch -d '1 hour ago' touched python3
exec `+python+` "$@"
`), 0o700))
	s := &Sockets{Program: []string{program, "-m", "vllm.entrypoints.cli.main"}}
	env := append(os.Environ(), "PYTHONPATH="+dir)
	require.ErrorContains(t, s.Lacks(env), "cannot ask "+program)
	require.NoError(t, os.WriteFile(filepath.Join(own, "works"), nil, 0o600))
	for range 3 {
		require.NoError(t, s.Lacks(env))
	}
	runs, err := os.ReadFile(filepath.Join(own, "runs"))
	require.NoError(t, err)
	require.Len(t, runs, 3, "one failed, one had its Python changed meanwhile, and one is kept")
}

// TestLookAtAnInstallationThatHangsIsBounded reads a program that is a pipe without a writer.
func TestLookAtAnInstallationThatHangsIsBounded(t *testing.T) {
	program := filepath.Join(t.TempDir(), "vllm")
	require.NoError(t, unix.Mkfifo(program, 0o700))
	s := &Sockets{Program: []string{program}, limit: 20 * time.Millisecond}
	for range 3 { // they share one look
		require.ErrorContains(t, s.Lacks(os.Environ()), "could not be read within 20ms")
	}
	s.limit = patience.Wait()
	done := make(chan error, 1)
	go func() { done <- s.Lacks(os.Environ()) }()
	writer, err := os.OpenFile(program, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, os.Remove(program), "a later look finds no program, and does not hang")
	require.NoError(t, writer.Close())
	require.Error(t, <-done)
}

// TestPythonOnADiskThatHangsIsNotRun has a Python that is a pipe without a writer.
func TestPythonOnADiskThatHangsIsNotRun(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python3")
	require.NoError(t, unix.Mkfifo(python, 0o700))
	err := (&Sockets{Program: []string{script(t, "#!"+python+"\n")}}).Lacks(os.Environ())
	require.ErrorContains(t, err, "the disk that it is on does not answer")
	writer, err := os.OpenFile(python, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
}

func TestTextIsFoundAcrossTheEndsOfReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, before := range []int{0, 1<<20 - 3, 1 << 20, 3<<20 + 1} {
		text := append(make([]byte, before), "--uds\x00"...)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		found, err := contains(path, "--uds")
		require.NoError(t, err)
		assert.True(t, found, before)
		found, err = contains(path, "--udx")
		require.NoError(t, err)
		assert.False(t, found)
	}
}
