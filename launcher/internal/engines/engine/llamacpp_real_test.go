//go:build llamacpp

package engine

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestLlamaConversationsGoOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := startLlama(t, dir, "-m", realLlama(t).ModelA, "--alias", "tiny,small", "--api-key", "sesame")
	assert.Equal(t, []string{"tiny", "small"}, s.plan.ServedNames)
	require.NoError(t, s.restore(dir), "nothing was saved")
	first, second := s.complete(firstPrompt), s.complete(secondPrompt)
	assert.Contains(t, s.plan.ServedNames, first.Model) // llama-server sorts its names
	assert.Zero(t, first.Timings.Cached)
	require.NoError(t, s.save(dir))

	s.restart()
	require.NoError(t, s.restore(dir))
	for prompt, before := range map[string]llamaCompletion{firstPrompt: first, secondPrompt: second} {
		after := s.complete(prompt)
		assert.Equal(t, before.Choices, after.Choices)
		assert.Equal(t, 1, after.Timings.Evaluated, "the last token is evaluated anew, and no other")
	}
	more := s.complete(firstPrompt + first.Choices[0].Text + " and so on")
	assert.Equal(t, len(" and so on")+1, more.Timings.Evaluated, "the new tokens, and the last one that was answered")

	s.restart()
	assert.Zero(t, s.complete(secondPrompt).Timings.Cached, "without Restore")
}

// The launcher asks an engine that has woken for one token. With one slot, llama-server keeps the
// conversation that the question replaces in main memory, and takes it back from there.
func TestLlamaConversationSurvivesAProbe(t *testing.T) {
	for _, slots := range []string{"1", "-1"} {
		dir := t.TempDir()
		s := startLlama(t, dir, "-m", realLlama(t).ModelA, "--parallel", slots)
		s.complete(secondPrompt)
		require.NoError(t, s.save(dir))
		s.restart()
		require.NoError(t, s.restore(dir))
		_, err := s.adapter.Probe(t.Context(), s.base(), s.plan.ServedNames[0], "", "")
		require.NoError(t, err)
		assert.Equal(t, 1, s.complete(secondPrompt).Timings.Evaluated, "%s slots", slots)
	}
}

// GET /slots shows no tokens of a slot that was restored, until the slot is used.
func TestLlamaSavesASlotThatWasOnlyRestored(t *testing.T) {
	dir := t.TempDir()
	s := startLlama(t, dir, realLlama(t).ModelA)
	s.complete(firstPrompt)
	for range 2 {
		require.NoError(t, s.save(dir))
		s.restart()
		require.NoError(t, s.restore(dir))
	}
	assert.Equal(t, 1, s.complete(firstPrompt).Timings.Evaluated)
}

func TestLlamaReplacesWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	s := startLlama(t, dir, realLlama(t).ModelA)
	s.complete(firstPrompt)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slot-17"), []byte("of an earlier save"), 0o600))
	require.NoError(t, s.save(dir))
	s.restart()
	require.NoError(t, s.save(dir))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var slots []string
	for _, file := range files {
		if info, err := file.Info(); err == nil && info.Size() > 100 && file.Name() != savedSlotsFile {
			slots = append(slots, file.Name())
		}
	}
	assert.Empty(t, slots, "no slot of the engine that was ended")
}

func TestLlamaBeginsAnewWithABrokenSlot(t *testing.T) {
	dir := t.TempDir()
	s := startLlama(t, dir, realLlama(t).ModelA)
	answer := s.complete(firstPrompt)
	s.complete(secondPrompt)
	require.NoError(t, s.save(dir))
	slots, err := filepath.Glob(filepath.Join(dir, "slot-*"))
	require.NoError(t, err)
	for _, file := range slots {
		if info, err := os.Stat(file); err == nil {
			require.NoError(t, os.Truncate(file, info.Size()/2))
		}
	}
	s.restart()
	require.ErrorContains(t, s.restore(dir), "cannot restore slot")
	assert.Equal(t, answer.Choices, s.complete(firstPrompt).Choices)
}

// llama-server itself would take the slots of a model of the same shape.
func TestLlamaTakesNoSlotsOfAnotherModel(t *testing.T) {
	real := realLlama(t)
	dir, model := t.TempDir(), filepath.Join(t.TempDir(), "model.gguf")
	install := func(from string) {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(model, data, 0o600))
	}
	install(real.ModelB)
	s := startLlama(t, dir, model)
	other := s.complete(firstPrompt)
	install(real.ModelA)
	s.restart()
	answer := s.complete(firstPrompt)
	assert.NotEqual(t, other.Choices, answer.Choices, "the models answer differently")
	require.NoError(t, s.save(dir))

	install(real.ModelB)
	s.restart()
	require.ErrorContains(t, s.restore(dir), "have changed")
	assert.Equal(t, other.Choices, s.complete(firstPrompt).Choices)
}

func TestLlamaReadsAModelInParts(t *testing.T) {
	real := realLlama(t)
	whole := startLlama(t, "", real.ModelA).complete(firstPrompt)
	s := planLlama(t, "", "hf://org/name")
	require.NoError(t, s.plan.ReadFrom(real.Split))
	s.start()
	s.await()
	assert.Equal(t, whole.Choices, s.complete(firstPrompt).Choices)
}

func TestLlamaModelsTellTheirShape(t *testing.T) {
	real := realLlama(t)
	parts := ggufParts(filepath.Join(real.Split, "tiny-a-00001-of-00002.gguf"))
	require.Len(t, parts, 2)
	for _, file := range []string{real.ModelA, parts[0]} {
		got, err := readShape(file)
		require.NoError(t, err)
		assert.Equal(t, shape{layers: 2, width: 64, heads: 2, cacheHeads: 2, context: 512}, got)
	}
}

func TestLlamaIsNotReadyWhileItLoads(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "model.gguf") // which llama-server opens, and waits
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	s := planLlama(t, "", pipe)
	require.True(t, Refused(s.adapter.Ready(t.Context(), s.base())))
	s.start()
	var status *StatusError
	require.Eventually(t, func() bool {
		err := s.adapter.Ready(t.Context(), s.base())
		return !Refused(err) && assert.ErrorAs(t, err, &status)
	}, patience.Wait(), 5*time.Millisecond)
	assert.Equal(t, http.StatusServiceUnavailable, status.Status)

	s.end(syscall.SIGTERM) // before it has a handler for it
	signal := s.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	assert.Equal(t, CauseKilled, s.adapter.Diagnose(Exit{Signal: int(signal)}, s.log.lines()).Code)
}

func TestLlamaLeavesItsSocketAndNoProcess(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"told to end": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			s := startLlama(t, "", realLlama(t).ModelA)
			pid := strconv.Itoa(s.cmd.Process.Pid)
			children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
			require.NoError(t, err)
			assert.Empty(t, string(children), "one process is all of it")
			s.complete(firstPrompt) // its handler of signals is there by now
			s.end(signal)
			assert.Equal(t, signal == syscall.SIGTERM, s.cmd.ProcessState.Success())
			assert.FileExists(t, s.socket)
			require.True(t, Refused(s.adapter.Ready(t.Context(), s.base())))

			s.start()
			s.ends()
			cause := s.adapter.Diagnose(exitOf(s.cmd), s.log.lines())
			if !strings.Contains(cause.Message, lostLines) {
				assert.Equal(t, CausePortTaken, cause.Code, "the launcher has to remove the socket: %s", cause.Message)
			}
			require.NoError(t, os.Remove(s.socket))
			s.start()
			s.await()
		})
	}
}

func exitOf(cmd *exec.Cmd) Exit {
	code := cmd.ProcessState.ExitCode()
	return Exit{Code: &code}
}

func TestLlamaAnswersProbes(t *testing.T) {
	s := startLlama(t, "", "-m", realLlama(t).ModelA, "--api-key", "sesame")
	first, err := s.adapter.Probe(t.Context(), s.base(), s.plan.ServedNames[0], s.plan.APIKey, "")
	require.NoError(t, err)
	assert.Equal(t, kindCompletion, first.Kind)
	assert.NotEmpty(t, first.Token)
	dear, err := s.adapter.Probe(t.Context(), s.base(), s.plan.ServedNames[0], s.plan.APIKey, kindLikeliest)
	require.NoError(t, err)
	assert.Len(t, dear.Likeliest, likeliest)
	assert.Equal(t, first.Token, dear.Token)
	assert.Equal(t, first.Token, dear.Likeliest[0])
	_, err = s.adapter.Probe(t.Context(), s.base(), s.plan.ServedNames[0], "", first.Kind)
	require.ErrorContains(t, err, "401")
	progress, err := s.adapter.Progress(t.Context(), s.base(), s.plan.APIKey)
	require.NoError(t, err)
	assert.NotEmpty(t, progress)
}

func TestLlamaEmbeds(t *testing.T) {
	s := startLlama(t, t.TempDir(), "-m", realLlama(t).ModelA, "--embeddings", "--pooling", "mean")
	first, err := s.adapter.Probe(t.Context(), s.base(), "any", "", "embedding")
	require.NoError(t, err)
	again, err := s.adapter.Probe(t.Context(), s.base(), "any", "", first.Kind)
	require.NoError(t, err)
	assert.True(t, again.Like(first))
	require.NoError(t, s.save(t.TempDir()))
}

func TestLlamaCountsWhatItDoes(t *testing.T) {
	s := startLlama(t, "", realLlama(t).ModelA)
	idle, err := s.adapter.Progress(t.Context(), s.base(), "")
	require.NoError(t, err)
	require.NotEmpty(t, idle)
	s.complete(firstPrompt)
	busy, err := s.adapter.Progress(t.Context(), s.base(), "")
	require.NoError(t, err)
	assert.NotEqual(t, idle, busy)
}

// The table of flags is written anew by -update.
func TestLlamaFlagsAreThoseOfItsHelp(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), realLlama(t).Program, "--help").Output()
	require.NoError(t, err)
	table := "# llama-server, written by TestLlamaFlagsAreThoseOfItsHelp: how many values, the variable, the names\n"
	names := regexp.MustCompile(`^(-[^ ,]+(?:, +-[^ ,]+)*)(.*)$`)
	variable := regexp.MustCompile(`\(env: (\w+)\)`)
	two := regexp.MustCompile(`^[A-Z]+ [A-Z]+$`)
	var flags, line []string
	for text := range strings.Lines(string(out)) {
		text = strings.TrimRight(text, "\n")
		if m := names.FindStringSubmatch(text); m != nil && !strings.HasPrefix(text, "-----") {
			if line != nil {
				flags = append(flags, strings.Join(line, " "))
			}
			placeholder := m[2]
			if len(text) > 40 && text[39] == ' ' { // the description begins there, or else in the next line
				placeholder = text[len(m[1]):40]
			}
			values := "1"
			switch placeholder = strings.TrimSpace(placeholder); {
			case placeholder == "":
				values = "0"
			case two.MatchString(placeholder):
				values = "2"
			}
			line = append([]string{values, "-"}, regexp.MustCompile(`, +`).Split(m[1], -1)...)
		}
		if m := variable.FindStringSubmatch(text); m != nil && line != nil {
			line[1] = m[1]
		}
	}
	flags = append(flags, strings.Join(line, " "))
	golden(t, "llamacpp_flags.txt", table+strings.Join(flags, "\n")+"\n")
}
