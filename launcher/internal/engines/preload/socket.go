package preload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// This file finds out from the engine's installation whether engines can listen on a Unix
// socket. Asking the program would take as long as its imports.

// Sockets remembers for which environments the engines of a program can listen on a Unix
// socket (vllm serve --uds).
type Sockets struct {
	Program []string // argv before the engine's own arguments

	looks singleflight.Group // one at a time for a key of known
	limit time.Duration      // of a look; 0: longestLook

	mu    sync.Mutex
	known map[string]finding // by the variables that choose the Python and its modules
}

// finding is what was found of an installation, until one of its files changes.
type finding struct {
	err   error // why engines cannot listen on a socket
	files []string
	stamp string // of the files, from before they were read
}

// readsNext notes the files that the look reads next.
func (f *finding) readsNext(files ...string) {
	f.files = append(f.files, files...)
	f.stamp += stamp(files)
}

// isDefinite reports whether the finding holds until a file changes. A look that failed may
// succeed the next time, for example after an upgrade or when there are processes again.
func (f *finding) isDefinite() bool {
	return f.err == nil || errors.Is(f.err, errHasNone) || errors.Is(f.err, errNoPython)
}

const (
	// lookTime bounds how long a Python may take to say where its modules are.
	lookTime = 30 * time.Second
	// longestLook bounds a look. Its files may be on a disk that hangs.
	longestLook = lookTime + 5*time.Second
)

// Lacks returns why engines with that environment cannot listen on a Unix socket; nil: they
// can.
func (s *Sockets) Lacks(env []string) error {
	key := strings.Join(choosesPython(env), "\x00")
	looked := s.looks.DoChan(key, func() (any, error) { return nil, s.look(key, env) })
	limit := cmp.Or(s.limit, longestLook)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case answer := <-looked:
		return answer.Err
	case <-timer.C:
		return fmt.Errorf("the files of %s could not be read within %s", s.Program[0], limit)
	}
}

// look is Lacks without the bound.
func (s *Sockets) look(key string, env []string) error {
	s.mu.Lock()
	last, ok := s.known[key]
	s.mu.Unlock()
	if ok && stamp(last.files) == last.stamp {
		return last.err
	}
	ctx, stop := context.WithTimeout(context.Background(), lookTime)
	defer stop()
	found := lacksSocket(ctx, s.Program, env)
	if found.isDefinite() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known == nil {
			s.known = map[string]finding{}
		}
		s.known[key] = found
	}
	return found.err
}

// choosesPython returns the variables of an environment that choose the Python of a script
// and where it finds modules.
func choosesPython(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "PYTHON") && !strings.HasPrefix(v, "HOME=")
	})
	slices.Sort(out)
	return out
}

// lacksSocket returns why a program cannot listen on a Unix socket, and the files that say
// so:
//
//	the program                                   it can, if
//	runs a Python that has the package vllm       a file of vllm/entrypoints reads args.uds
//	any other                                     the program's file names --uds
//
// A vllm from a source checkout has no number of its release, and a script that runs another
// program has none either.
func lacksSocket(ctx context.Context, program, env []string) (f finding) {
	f.readsNext(program[0])
	python, err := pythonOfProgram(program[0], env)
	if err == nil {
		f.readsNext(python[0])
		var folder string
		if folder, err = packageOf(ctx, python, program[0], env); err == nil {
			f.readsNext(folder, filepath.Dir(folder))
			f.err = mentionsSocket(folder)
			return f
		}
	}
	names, readErr := contains(program[0], "--uds")
	if readErr != nil {
		err = readErr
	}
	if !names {
		f.err = fmt.Errorf("the launcher cannot tell whether %s has --uds: %w", program[0], err)
	}
	return f
}

// pythonOfProgram returns the Python, with its flags, that runs a program.
func pythonOfProgram(program string, env []string) ([]string, error) {
	switch {
	case strings.HasPrefix(filepath.Base(program), "python"):
		return []string{program}, nil
	case byPath(program) && byName(env)["PATH"] != os.Getenv("PATH"):
		return nil, fmt.Errorf("the instance's PATH, by which it finds its Python, differs from the launcher's")
	}
	return Interpreter(program)
}

// findPackage prints the folder of the package vllm, as a script in the given folder finds
// it.
const findPackage = `import sys
if sys.path and sys.path[0] == "":
    sys.path[0] = sys.argv[1]
import importlib.util
found = importlib.util.find_spec("vllm")
print(list(found.submodule_search_locations)[0] if found else "")`

// packageOf returns the folder of the package vllm that a script finds, run by a Python.
func packageOf(ctx context.Context, python []string, script string, env []string) (string, error) {
	if target, err := filepath.EvalSymlinks(script); err == nil {
		script = target // as Python does
	}
	out, err := outputOf(ctx, slices.Concat(python, []string{"-c", findPackage, filepath.Dir(script)}), env)
	if err != nil {
		return "", fmt.Errorf("cannot ask %s for its module vllm: %w", python[0], err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	folder := strings.TrimSpace(lines[len(lines)-1]) // what is installed may print before
	if !filepath.IsAbs(folder) {
		return "", fmt.Errorf("%s has no module vllm", python[0])
	}
	return folder, nil
}

// outputOf returns the output of a command, which runs in a process group of its own. The
// error has the last line of its complaint.
func outputOf(ctx context.Context, argv, env []string) (string, error) {
	if err := process.CanBeRead(argv[0]); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return "", fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return string(out), nil
}

var (
	errFound   = errors.New("found")
	errHasNone = errors.New("has no --uds")
)

// mentionsSocket returns an error if no file of vllm's entry points reads the flag --uds.
func mentionsSocket(folder string) error {
	err := filepath.WalkDir(filepath.Join(folder, "entrypoints"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".py" {
			return err
		}
		if found, err := contains(path, "args.uds"); err != nil || !found {
			return err
		}
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case err != nil:
		return fmt.Errorf("the launcher cannot tell whether the vllm in %s has --uds: %w", folder, err)
	}
	return fmt.Errorf("the vllm in %s %w; install a newer release", folder, errHasNone)
}

// contains reports whether a file contains a text.
func contains(path, text string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	const most = 1 << 20
	buffer := make([]byte, 0, most+len(text))
	for {
		n, err := io.ReadFull(file, buffer[len(buffer):len(buffer)+most])
		buffer = buffer[:len(buffer)+n]
		if bytes.Contains(buffer, []byte(text)) {
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept := copy(buffer, buffer[len(buffer)-len(text):])
		buffer = buffer[:kept]
	}
}
