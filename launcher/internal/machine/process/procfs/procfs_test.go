package procfs

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkAll(b *testing.B) {
	var n int
	for b.Loop() {
		all, _, err := All()
		require.NoError(b, err)
		n = len(all)
	}
	b.ReportMetric(float64(n), "processes")
}

func TestAStatLineIsReadWhateverTheProcessCallsItself(t *testing.T) {
	tail := " S 17 18 19 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 123456789 1 1"
	want := Stat{PID: 42, State: 'S', PPID: 17, Session: 19, Threads: 3, StartTime: 123456789}
	for _, name := range []string{"vllm", "a b", ") S 1 2 3 (", "(", "", "\n"} {
		got, err := parse([]byte("42 (" + name + ")" + tail))
		require.NoError(t, err, "%q", name)
		require.Equal(t, want, got)
	}
	for _, broken := range []string{"", "42", "42 (a", "42 (a) S 1", "x (a)" + tail, "42 (a) S x 18 19 0 -1 0 1 0 0 0 0 0 0 0 20 0 3 0 1 1"} {
		_, err := parse([]byte(broken))
		require.Error(t, err, "%q", broken)
	}
}

func TestAZombieIsNotAliveButOneWhoseOtherThreadsRunIs(t *testing.T) {
	require.True(t, Stat{State: 'S', Threads: 1}.Alive())
	require.False(t, Stat{State: 'Z', Threads: 1}.Alive())
	require.False(t, Stat{State: 'X'}.Alive())
	require.True(t, Stat{State: 'Z', Threads: 2}.Alive())
}

func TestThisProcessIsSeenAsItIs(t *testing.T) {
	t.Setenv("NOT_SEEN", "set after the start")
	stat, err := Read(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), stat.PPID)
	require.True(t, stat.Alive())
	require.NotZero(t, stat.StartTime)

	all, _, err := All()
	require.NoError(t, err)
	pids := map[int]bool{}
	for _, s := range all {
		pids[s.PID] = true
	}
	require.True(t, pids[os.Getpid()] && pids[1])
	env, err := Environ(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, env, "PATH="+os.Getenv("PATH"))
	require.NotContains(t, env, "NOT_SEEN=set after the start")
	_, err = Read(1 << 30)
	require.ErrorIs(t, err, os.ErrNotExist)
	env, err = Environ(1 << 30)
	require.NoError(t, err)
	require.Empty(t, env)
	id, err := BootID()
	require.NoError(t, err)
	require.Len(t, id, 36)
}

func TestChildrenAreThoseOfEveryThread(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "300")
	require.NoError(t, cmd.Start())
	children, err := Children()
	require.NoError(t, err)
	require.Equal(t, []int{cmd.Process.Pid}, children)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	children, err = Children()
	require.NoError(t, err)
	require.Empty(t, children)
}

// TestAProcessThatEndsWhileItIsReadIsNotThere reads processes at the very moment of
// their ends, as often as it takes to meet the kernel in each of its steps.
func TestAProcessThatEndsWhileItIsReadIsNotThere(t *testing.T) {
	for range 300 {
		cmd := exec.Command("/bin/true")
		require.NoError(t, cmd.Start())
		over := make(chan error, 1)
		go func() { over <- cmd.Wait() }()
		for {
			if _, err := Read(cmd.Process.Pid); err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
				break
			}
		}
		require.NoError(t, <-over)
	}
}
