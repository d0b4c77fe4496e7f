package supervisor

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// aProcess is one of a table of processes.
type aProcess struct {
	parent     int
	args       []string
	env        []string
	stranger   bool // it belongs to another user
	unreadable bool
	hangs      bool // the kernel does not show its memory
}

type processTable map[int]aProcess

func (t processTable) Read(pid int) (procfs.Stat, error) {
	p, ok := t[pid]
	if !ok {
		return procfs.Stat{}, os.ErrNotExist
	}
	if p.unreadable {
		return procfs.Stat{}, syscall.EMFILE
	}
	return procfs.Stat{PID: pid, PPID: p.parent, StartTime: uint64(pid), State: 'S'}, nil
}

func (t processTable) Session(pid int) (int, error) { return pid, nil }
func (t processTable) Resident(int) procfs.Resident { return procfs.Resident{} }
func (t processTable) Arguments(pid int) []string   { return t[pid].args }

func (t processTable) Environ(pid int) ([]string, error) {
	if t[pid].hangs {
		return nil, procfs.ErrHangs
	}
	return t[pid].env, nil
}

func (t processTable) IsOwn(pid int) (bool, error) { return !t[pid].stranger, nil }
func (t processTable) Output(int) (string, error)  { return "", os.ErrNotExist }

func TestRecordsOfOtherLaunchersEnginesAreDropped(t *testing.T) {
	boot, err := procfs.BootID()
	require.NoError(t, err)
	self := os.Getpid()
	const init, other, engine = 9_000_001, 9_000_002, 9_000_003
	early := []string{"HOTSEAT_LAUNCHER=early"}
	serve := []string{"launcher", "serve"}
	for what, c := range map[string]struct {
		mark    string
		engine  aProcess
		gone    bool
		boot    string // empty: this one
		last    int    // the process that had the folder before
		foreign bool
	}{
		"its own":                    {mark: "own"},
		"its own, which has ended":   {mark: "own", gone: true},
		"its own, of another user":   {mark: "own", engine: aProcess{stranger: true}},
		"another's":                  {mark: "another", foreign: true},
		"another's, which has ended": {mark: "another", gone: true},
		"another's, from before a restart of the machine":                  {mark: "another", boot: "before"},
		"of an earlier release":                                            {engine: aProcess{parent: 1, env: early}},
		"of an earlier release, under this launcher's init":                {engine: aProcess{parent: init, env: early}},
		"of an earlier release, which shows no mark":                       {engine: aProcess{parent: 1}},
		"of an earlier release, which hangs":                               {engine: aProcess{parent: 1, env: early, hangs: true}},
		"written by an earlier release that was in use again":              {engine: aProcess{parent: 1, env: []string{"HOTSEAT_LAUNCHER=own"}}},
		"of an earlier release, which has ended":                           {gone: true},
		"of an earlier release, by the launcher before":                    {engine: aProcess{parent: 1, env: early}, last: 9_000_009},
		"of an earlier release, by this launcher before it execs":          {engine: aProcess{parent: 1, env: early}, last: self},
		"of an earlier release and of another user":                        {engine: aProcess{parent: 1, env: early, stranger: true}, foreign: true},
		"of an earlier release, with a folder of another path":             {engine: aProcess{parent: 1, env: []string{"HOTSEAT_LAUNCHER=elsewhere"}}, foreign: true},
		"of an earlier release, whose launcher lives":                      {engine: aProcess{parent: other, env: early}, foreign: true},
		"of an earlier release, with a folder whose launcher lives":        {engine: aProcess{parent: 1, env: early}, last: other, foreign: true},
		"of an earlier release, ended, with a folder whose launcher lives": {gone: true, last: other},
	} {
		t.Run(what, func(t *testing.T) {
			table := processTable{self: {parent: init, args: serve}, init: {parent: 1, args: []string{"launcher", "init", "--", "serve"}}, 1: {}, other: {parent: 1, args: serve}}
			if !c.gone {
				table[engine] = c.engine
			}
			if c.boot == "" {
				c.boot = boot
			}
			var state SavedState
			state.Add(SavedInstance{Facts: facts{ID: "a", Mark: c.mark}, Root: process.ID{PID: engine, StartTime: engine, BootID: c.boot}})
			dropped, err := state.DropForeign(Owner{Mark: "own", EarlierMark: "early", LastPID: c.last, Processes: table})
			require.NoError(t, err)
			assert.Len(t, dropped, map[bool]int{true: 1}[c.foreign])
			if c.foreign {
				assert.Empty(t, state.Instances)
				assert.Empty(t, state.Earlier())
				return
			}
			require.Len(t, state.Instances, 1)
			assert.Equal(t, []string{"own"}, state.Marks())
			if c.mark == "" {
				assert.Equal(t, map[string]process.EarlierTree{"a": {Root: state.Instances[0].Root, Mark: "early"}}, state.Earlier())
			} else {
				assert.Empty(t, state.Earlier())
			}
		})
	}
}

func TestNothingGoesOnThatAnotherLauncherMayBeAbout(t *testing.T) {
	for mark, want := range map[string]launcher.State{"own": launcher.Waking, "another": launcher.Sleeping} {
		var state SavedState
		state.Add(SavedInstance{Facts: facts{ID: "a", Mark: mark}, State: launcher.Waking, SwapID: "swap", HoldGate: true})
		_, err := state.DropForeign(Owner{Mark: "own", Processes: processTable{}})
		require.NoError(t, err)
		require.Len(t, state.Instances, 1)
		assert.Equal(t, want, state.Instances[0].State)
		assert.Equal(t, mark == "own", state.Instances[0].SwapID != "")
		assert.Equal(t, mark == "own", state.Instances[0].HoldGate)
	}
}

func TestRecordsAreNotSortedWhileAProcessCannotBeRead(t *testing.T) {
	boot, err := procfs.BootID()
	require.NoError(t, err)
	for _, mark := range []string{"", "another"} {
		var state SavedState
		state.Add(SavedInstance{Facts: facts{ID: "a", Mark: mark}, Root: process.ID{PID: 9, StartTime: 9, BootID: boot}})
		_, err := state.DropForeign(Owner{Mark: "own", EarlierMark: "early", Processes: processTable{9: {unreadable: true}}})
		require.ErrorIs(t, err, syscall.EMFILE)
		assert.Len(t, state.Instances, 1)
	}
}
