package simopts

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCrashesAreReadInTheFormsThatHelpShows(t *testing.T) {
	for text, want := range map[string]Crash{
		"exit:3":                 {Process: "api", Exit: 3},
		"signal:SEGV":            {Process: "api", Signal: syscall.SIGSEGV},
		"signal:sigkill@2s":      {Process: "api", Signal: syscall.SIGKILL, After: 2 * time.Second},
		"worker:signal:KILL":     {Process: "worker", Signal: syscall.SIGKILL},
		"core:exit:0@10ms":       {Process: "core", After: 10 * time.Millisecond},
		"api:exit:255":           {Process: "api", Exit: 255},
		"worker:signal:ABRT@1ms": {Process: "worker", Signal: syscall.SIGABRT, After: time.Millisecond},
	} {
		got, err := ParseCrash(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "exit", "exit:", "exit:256", "exit:-1", "signal:NONE", "gpu:exit:1", "exit:1@soon", "exit:1@-1s", "a:b:c:d", "boom:1"} {
		_, err := ParseCrash(text)
		require.ErrorContains(t, err, "invalid crash", text)
	}
}

func TestEveryOptionTakesAValueAndRefusesAnother(t *testing.T) {
	values := map[string][2]string{
		"DURATION": {"1s", "soon"}, "N": {"4", "-1"}, "BYTES": {"2MiB", "2XiB"}, "CRASH": {"exit:1", "x"},
		"TIMES": {"always", "sometimes"}, "BOOL": {"true", "maybe"}, "PATH": {"/x", ""},
		"group|session|double-fork": {"group", "x"}, "keep|clear": {"clear", "x"},
	}
	for _, o := range Options {
		pair, ok := values[o.Value]
		require.True(t, ok, o.Value)
		s := Defaults()
		require.NoError(t, o.Set(&s, pair[0]), o.Name)
		require.NotEqual(t, Defaults(), s, "%s sets nothing", o.Name)
		if pair[1] != "" {
			require.ErrorContains(t, o.Set(&s, pair[1]), o.Flag())
		}
	}
}

func TestBytesMayHaveAUnit(t *testing.T) {
	set := bytes(func(s *Settings) *uint64 { return &s.StrayBytes })
	for text, want := range map[string]uint64{"7": 7, "2KiB": 2 << 10, "3 MiB": 3 << 20, "4GiB": 4 << 30} {
		var s Settings
		require.NoError(t, set(&s, text))
		require.Equal(t, want, s.StrayBytes)
	}
	require.Error(t, set(&Settings{}, "99999999999999GiB"))
}

func TestTheEnvironmentSetsOptions(t *testing.T) {
	s := Defaults()
	require.NoError(t, FromEnv(&s, func(name string) string {
		return map[string]string{"ENGINESIM_FAIL_WAKE": "2"}[name]
	}))
	require.Equal(t, Times(2), s.FailWake)
}

func TestTimesRunOutUnlessTheyAreAlways(t *testing.T) {
	two, always := Times(2), Always
	require.Equal(t, []bool{true, true, false}, []bool{two.Take(), two.Take(), two.Take()})
	require.Equal(t, []bool{true, true}, []bool{always.Take(), always.Take()})
}

func TestAFaultOfAFileIsDueOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "once")
	c := Crash{Process: "core"}
	require.False(t, c.Due("worker", file), "not of this process, and not used up")
	require.True(t, c.Due("core", file))
	require.False(t, c.Due("core", file))
	require.True(t, c.Due("core", ""))
	require.False(t, Crash{}.Due("api", ""), "no crash is never due")
}
