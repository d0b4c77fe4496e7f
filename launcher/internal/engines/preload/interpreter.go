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

// shPython matches the second line of a script whose interpreter cannot stand in the
// first line, because its path is too long or has blanks. sh runs that second line,
// and Python reads it as a string. pip and uv write such scripts.
var shPython = regexp.MustCompile(`^'''exec' "?([^"]+?)"? "\$0" "\$@"`)

var errNoPython = errors.New("not a Python script")

// PythonOf returns the Python, with its flags, that loads a command's engine. It is
// the chosen one, or, when chosen is empty, the command's own. The error says why the
// engine cannot be forked.
func PythonOf(command string, arguments []string, chosen string) ([]string, error) {
	switch {
	case len(arguments) > 0:
		return nil, fmt.Errorf("the engine's command must be a script alone, but it has the arguments %q", arguments)
	case chosen != "":
		return find([]string{chosen})
	}
	return Interpreter(command)
}

// Interpreter reads from the first lines of a command which Python runs it, and with
// which flags. The error says why the lines do not name one.
func Interpreter(command string) ([]string, error) {
	argv, second, err := shebang(command)
	if err != nil {
		return nil, err
	}
	run := strings.Join(argv, " ")
	switch {
	case len(argv) == 0:
		return nil, fmt.Errorf("%s is %w: its first line names no interpreter", command, errNoPython)
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
		return nil, fmt.Errorf("%s is %w: its first line names %s", command, errNoPython, run)
	}
	return find(argv)
}

// shebang splits the first line of a script as the kernel does: the rest of the line
// after the program is one argument (execve(2)). argv is empty for a file that is not
// a script. second is the script's second line.
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
	second, _ = lines.ReadString('\n') // an error means that there is no second line
	if n := strings.IndexAny(run, " \t"); n >= 0 {
		return []string{run[:n], strings.TrimSpace(run[n:])}, second, nil
	}
	return strings.Fields(run), second, nil
}

// isEnv reports whether PATH decides which program runs a script.
func isEnv(argv []string) bool { return len(argv) == 2 && filepath.Base(argv[0]) == "env" }

// byPath reports whether PATH decides which Python runs a command.
func byPath(command string) bool {
	argv, _, err := shebang(command)
	return err == nil && isEnv(argv)
}

// find replaces the interpreter's name by its path.
func find(argv []string) ([]string, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("cannot find the interpreter: %w", err)
	}
	return append([]string{path}, argv[1:]...), nil
}
