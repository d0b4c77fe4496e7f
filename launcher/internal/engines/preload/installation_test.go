package preload

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/pyengine"
)

// withLinkedCommand replaces the command by a link to it.
func withLinkedCommand(f *fixture) {
	link := filepath.Join(f.logs, "vllm")
	require.NoError(f.t, os.Symlink(f.command, link))
	f.command, f.options.Command = link, link
}

// linkTo makes the link point to the command of a new installation, which reports the
// value of read.
func (f *fixture) linkTo(read string) {
	f.t.Helper()
	dir := f.t.TempDir()
	command, err := pyengine.Install(dir)
	require.NoError(f.t, err)
	require.NoError(f.t, os.WriteFile(filepath.Join(dir, "vllm", "__init__.py"), fmt.Appendf(nil, "read = %q\n", read), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(f.t, os.Chtimes(command, old, old)) // as packages unpack it
	require.NoError(f.t, os.Symlink(command, f.command+".new"))
	require.NoError(f.t, os.Rename(f.command+".new", f.command))
}

func TestChangedLinkOfCommandCausesReload(t *testing.T) {
	f := newFixture(t, withLinkedCommand)
	f.ready()
	f.linkTo("elsewhere")
	assert.Contains(t, f.refusalReason(), "has changed")
	f.ready()
	got := f.forkedFacts("a")
	assert.Equal(t, "elsewhere", got.Read)
}

func TestLinkChangedDuringLoadCausesReload(t *testing.T) {
	f := newFixture(t, withLinkedCommand, func(f *fixture) {
		f.write("vllm/__init__.py", fmt.Sprintf("import os\nread = 'old'\nopen(%q, 'w')\nwhile not os.path.exists(%q):\n    pass\n",
			filepath.Join(f.dir, "began"), filepath.Join(f.dir, "go")))
	})
	f.eventually("it loads", func() bool { _, err := os.Stat(filepath.Join(f.dir, "began")); return err == nil })
	f.linkTo("elsewhere")
	f.write("go", "")
	f.ready()
	got := f.forkedFacts("a")
	assert.Equal(t, "elsewhere", got.Read)
}

func TestChangedInterpreterCausesReloadWithIt(t *testing.T) {
	f := newFixture(t)
	f.ready()
	python, err := pyengine.Python()
	require.NoError(t, err)
	other := filepath.Join(f.logs, "python3")
	require.NoError(t, os.Symlink(python, other))
	was, err := os.ReadFile(f.command)
	require.NoError(t, err)
	f.shebang("#!" + other + " -s")
	assert.Contains(t, f.refusalReason(), "has changed")
	f.ready()
	assert.Equal(t, other+" -s", f.pool.List().Preloaders[0].Interpreter)

	require.NoError(t, os.WriteFile(f.command, []byte("#!/bin/sh\n"), 0o700))
	assert.Contains(t, f.refusalReason(), "has changed")
	f.eventually("the reason is told", func() bool {
		return f.refusalReason() == "the preloader is waiting: it could not load the engine: "+f.command+" is not a Python script: its first line names /bin/sh"
	})
	require.NoError(t, os.WriteFile(f.command, was, 0o700))
	f.ready()
}

func TestInterpreterFlagsAreNotEngineArguments(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		python, err := pyengine.Python()
		require.NoError(f.t, err)
		f.shebang("#!" + python + " -s")
	})
	f.ready()
	want, got := f.startBoth([]string{"serve", "m"}, nil)
	assert.Equal(t, []string{f.command, "serve", "m"}, got.Argv)
	assert.Equal(t, want.Argv, got.Argv)
	assert.Equal(t, want.Cmdline, got.Cmdline)
	assert.Equal(t, want.Comm, got.Comm)
}

func TestMarksAreShownFirstInProcEnviron(t *testing.T) {
	f := newFixture(t)
	f.ready()
	got := f.forkedFacts("a", "HOTSEAT_AAA="+pad+pad)
	assert.True(t, got.Shown)
}

func TestTextWithoutLocaleIsTheSameByForkAndExec(t *testing.T) {
	f := newFixture(t)
	env := []string{"LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0", "NAME=é"}
	f.ready(env...)
	want, got := f.startBoth([]string{"serve", "é"}, env)
	assert.Equal(t, want.Argv, got.Argv)
	assert.Equal(t, want.Env["NAME"], got.Env["NAME"])
}

func TestCommandMayChangeItsArguments(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.script("import sys\nfrom vllm.engine import main\nif __name__ == '__main__':\n    sys.argv.append('more')\n    sys.exit(main())\n")
	})
	f.ready()
	want, got := f.startBoth([]string{"serve"}, nil)
	assert.Equal(t, []string{f.command, "serve", "more"}, got.Argv)
	assert.Equal(t, want.Argv, got.Argv)
}

func TestChangedModuleCausesReload(t *testing.T) {
	f := newFixture(t)
	f.ready()
	file := filepath.Join(f.dir, "vllm", "engine.py")
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	f.write("vllm/engine.py", "vllm_was = 'written anew'\n"+string(was))
	assert.Contains(t, f.refusalReason(), file+" has changed since it was loaded")
	f.ready()
	f.forkedFacts("a")
}

func TestLastAnswerOfEndedPreloaderIsRead(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.pool.mu.Lock()
	l := f.pool.all[0]
	r := l.run
	f.pool.mu.Unlock()
	<-r.turn
	f.write("vllm/engine.py", "vllm_was = 'written anew'\n")
	require.NoError(t, r.conn.send(request{}))
	<-r.tree.Done()
	f.eventually("its end is seen", func() bool {
		f.pool.mu.Lock()
		defer f.pool.mu.Unlock()
		return l.state == Waiting
	})
	time.Sleep(50 * time.Millisecond) // time to lose the answer
	var last answer
	require.NoError(t, r.conn.receive(&last))
	assert.Contains(t, last.Refused, "has changed since it was loaded")
	r.turn <- struct{}{}
}

func TestInstallationWithFutureTimesIsLoadedOnce(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		tomorrow := time.Now().Add(24 * time.Hour)
		for _, file := range []string{f.command, filepath.Join(f.dir, "vllm-0.30.0.dist-info"), filepath.Join(f.dir, "vllm", "__init__.py")} {
			require.NoError(f.t, os.Chtimes(file, tomorrow, tomorrow))
		}
	})
	f.ready()
	f.forkedFacts("a")
}

func TestOtherPathIsNotForkedWhenPathDecidesPython(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.shebang("#!/usr/bin/env python3")
	})
	f.ready()
	f.forkedFacts("a")
	assert.Contains(t, f.refusalReason("PATH=/usr/bin:/bin"), "finds its Python by PATH")
}

func TestOutputOfImportsIsInEachInstancesLog(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/__init__.py", "import sys\nread = ''\nprint('one')\nprint('two', file=sys.stderr)\n")
	})
	f.ready()
	for _, name := range []string{"a", "b"} {
		_, log := f.fork(name, nil, nil)
		f.line(log, 2, &facts{})
		said, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Contains(t, string(said), "one\n")
		assert.Contains(t, string(said), "two\n")
	}
}
