package preload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// shPython is the second line of a script whose interpreter has too long a path for
// a first line, or one with blanks: sh runs that line, and Python reads it as a
// string (pip and uv write such scripts).
var shPython = regexp.MustCompile(`^'''exec' "?([^"]+?)"? "\$0" "\$@"`)

// PythonOf tells which Python, with its flags, loads a command's engine: the chosen
// one, or when chosen is empty the command's own. The error says why no engine can
// be forked.
func PythonOf(command string, arguments []string, chosen string) ([]string, error) {
	switch {
	case len(arguments) > 0:
		return nil, fmt.Errorf("the engine's command has arguments of its own: %q", arguments)
	case chosen != "":
		return find([]string{chosen})
	}
	return Interpreter(command)
}

// Interpreter reads from the first lines of a command which Python runs it, with
// the flags given there. The error says why that cannot be told.
func Interpreter(command string) ([]string, error) {
	argv, second, err := shebang(command)
	if err != nil {
		return nil, err
	}
	run := strings.Join(argv, " ")
	switch {
	case len(argv) == 0:
		return nil, fmt.Errorf("%s is not a Python script: its first line names no interpreter", command)
	case isEnv(argv):
		argv = argv[1:]
		if split, ok := strings.CutPrefix(argv[0], "-S"); ok {
			argv = strings.Fields(split)
		}
	case filepath.Base(argv[0]) == "sh":
		if found := shPython.FindStringSubmatch(second); found != nil {
			argv = []string{found[1]}
		}
	}
	if len(argv) == 0 || !strings.HasPrefix(filepath.Base(argv[0]), "python") {
		return nil, fmt.Errorf("%s is not a Python script: it is run by %s", command, run)
	}
	return find(argv)
}

// shebang splits the first line of a script as the kernel does: what follows the
// program is one argument (execve(2)). argv is empty for a file that is no script.
func shebang(command string) (argv []string, second string, err error) {
	file, err := os.Open(command)
	if err != nil {
		return nil, "", fmt.Errorf("cannot read %s: %w", command, err)
	}
	defer file.Close()
	lines := bufio.NewReader(io.LimitReader(file, 4096))
	first, err := lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", fmt.Errorf("cannot read %s: %w", command, err)
	}
	run, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return nil, "", nil
	}
	run = strings.TrimSpace(run)
	second, _ = lines.ReadString('\n') // there may be no second line
	if n := strings.IndexAny(run, " \t"); n >= 0 {
		return []string{run[:n], strings.TrimSpace(run[n:])}, second, nil
	}
	return strings.Fields(run), second, nil
}

// isEnv says whether a script leaves it to PATH which program runs it.
func isEnv(argv []string) bool { return len(argv) == 2 && filepath.Base(argv[0]) == "env" }

// byPath says whether it is left to PATH which Python runs a command.
func byPath(command string) bool {
	argv, _, err := shebang(command)
	return err == nil && isEnv(argv)
}

// find gives the interpreter its path.
func find(argv []string) ([]string, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("cannot find the interpreter: %w", err)
	}
	return append([]string{path}, argv[1:]...), nil
}
