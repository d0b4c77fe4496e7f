package statedir

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a child process that does one thing.
const childEnv = "STATEDIR_TEST_CHILD"

func TestMain(m *testing.M) {
	children := map[string]func(dir string){"lock": childLock, "hold": childHold, "put": childPut}
	what := os.Getenv(childEnv)
	if what == "" {
		goleak.VerifyTestMain(m)
		return
	}
	do, ok := children[what]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such child:", what)
		os.Exit(2)
	}
	do(os.Args[1])
}

// child makes a command that runs this binary as a child on a folder.
func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, dir)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}
