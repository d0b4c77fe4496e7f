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

// shPython is the second line of a script whose interpreter has too long a path
// for a first line, or one with blanks: sh runs it, and Python reads it as a
// string (pip and uv write it so).
var shPython = regexp.MustCompile(`^'''exec' "?([^"]+?)"? "\$0" "\$@"`)

// PythonOf tells which Python loads a command's engine, with its flags: the one
// that was chosen, or when that is empty the command's own. The error says why
// nothing can be forked.
func PythonOf(command string, arguments []string, chosen string) ([]string, error) {
	switch {
	case len(arguments) > 0:
		return nil, fmt.Errorf("the engine's command has arguments of its own: %q", arguments)
	case chosen != "":
		return find([]string{chosen})
	}
	return Interpreter(command)
}

// Interpreter reads from its first lines which Python a command is run by, with
// the flags given there. The error says what is in the way.
func Interpreter(command string) ([]string, error) {
	file, err := os.Open(command)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", command, err)
	}
	defer file.Close()
	lines := bufio.NewReader(io.LimitReader(file, 4096))
	first, err := lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", command, err)
	}
	run, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return nil, fmt.Errorf("%s is not a Python script: its first line names no interpreter", command)
	}
	argv := strings.Fields(run)
	switch {
	case len(argv) == 0:
		return nil, fmt.Errorf("%s is not a Python script: its first line names no interpreter", command)
	case filepath.Base(argv[0]) == "env":
		if argv = argv[1:]; len(argv) > 0 && argv[0] == "-S" {
			argv = argv[1:]
		}
	case filepath.Base(argv[0]) == "sh":
		second, _ := lines.ReadString('\n')
		if found := shPython.FindStringSubmatch(second); found != nil {
			argv = []string{found[1]}
		}
	}
	if len(argv) == 0 || !strings.HasPrefix(filepath.Base(argv[0]), "python") {
		return nil, fmt.Errorf("%s is not a Python script: it is run by %s", command, strings.TrimSpace(run))
	}
	return find(argv)
}

// find gives the interpreter its path.
func find(argv []string) ([]string, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("cannot find the interpreter: %w", err)
	}
	return append([]string{path}, argv[1:]...), nil
}
