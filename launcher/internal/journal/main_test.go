package journal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

// childEnv makes the test binary a child process that does one thing.
const childEnv = "JOURNAL_TEST_CHILD"

// bound is how long any wait may take before the test counts as failed.
const bound = time.Minute

func TestMain(m *testing.M) {
	children := map[string]func(dir string){
		"append":       childAppend,
		"lock":         childLock,
		"hold":         childHold,
		"limited":      childLimited,
		"full-disk":    childFullDisk,
		"full-folder":  childFullFolder,
		"full-start":   childFullStart,
		"full-damaged": childFullDamaged,
	}
	what := os.Getenv(childEnv)
	if what == "" {
		goleak.VerifyTestMain(m)
		return
	}
	children[what](os.Args[1])
}

func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	// The race detector would let every child wait for a second at its end.
	cmd.Env = append(os.Environ(), childEnv+"="+what, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// inNamespaces gives the child mounts that nobody else sees.
func inNamespaces(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	return cmd
}

// note is a record: the value of a counter.
type note struct {
	Counter string `json:"counter"`
	Value   int    `json:"value"`
	Filler  string `json:"filler,omitempty"`
}

// newPath gives a path for a journal in a folder of its own.
func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "journal")
}

func open(t *testing.T, path string, opts journal.Options) (*journal.Journal, journal.Found) {
	t.Helper()
	j, found, err := journal.Open(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j, found
}

func mustAppend(t *testing.T, j *journal.Journal, values ...int) {
	t.Helper()
	for _, v := range values {
		require.NoError(t, j.Append(note{Counter: "a", Value: v}))
	}
}

// values are those of the counters, in order.
func values(t *testing.T, records []json.RawMessage) []int {
	t.Helper()
	var out []int
	for _, r := range records {
		var n note
		require.NoError(t, json.Unmarshal(r, &n))
		out = append(out, n.Value)
	}
	return out
}

// replayed opens the journal once more and gives the values in it.
func replayed(t *testing.T, path string) []int {
	t.Helper()
	j, found, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.Nil(t, found.Broken)
	return values(t, found.Records)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func upTo(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}

// childAppend appends one record after the other, and says each one that it
// appended, until it is killed. It compacts all the time.
func childAppend(dir string) {
	last := -1
	var opts journal.Options
	opts.MaxBytes = 2000
	opts.Snapshot = func() ([]any, error) { return []any{note{Counter: "a", Value: last}}, nil }
	j, _, err := journal.Open(filepath.Join(dir, "journal"), opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; ; i++ {
		if err := j.Append(note{Counter: "a", Value: i}); err != nil {
			fmt.Println(err)
			return
		}
		last = i
		_, _ = os.Stdout.WriteString(strconv.Itoa(i) + "\n")
		if i%50 == 49 {
			if err := j.Compact(); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
}
