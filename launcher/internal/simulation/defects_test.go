package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/schedules"
)

// defect is something that was wrong with the launcher once, and what brings it back.
// What mends it stands in production code alone: the edits are made to a copy.
type defect struct {
	name  string
	edits []edit
}

// edit is a text that stands in one place of the launcher, and what takes its place.
type edit struct{ old, new string }

var defects = []defect{
	{"an undo deletes whoever has the id of the new one", []edit{
		{"if c != own && c.plan.Makes() && c.plan.In == id {", "if c == nil {"},
		{"	i := c.in\n	if i == nil || !c.s.lists(i) {", "	i := c.s.instances[c.plan.In]\n	if i == nil {"},
	}},
	{"a victim that was woken is evicted", []edit{
		{"case i.state == launcher.Sleeping && i.victim && i.swapID == c.plan.SwapID && c.s.lists(i):", "case c.s.lists(i):"},
		{"	for _, i := range c.all() {\n		if i.swapID == \"\" {", "	for _, i := range c.all() {\n		if i.swapID == \"\" && !slices.Contains(c.plan.Evict, i.facts.ID) {"},
	}},
	{"an end that failed is taken for one that succeeded", []edit{
		{"		if err == nil {\n			return held, true\n		}", "		if err != nil || err == nil {\n			return held, true\n		}"},
	}},
	{"a sleep of a level that is not known is taken for one of level 1", []edit{
		{"if saved.Doubted && saved.State != launcher.Awake {", "if false {"},
		{"saved.State, saved.Level = launcher.Sleeping, 2 //", "saved.State = launcher.Sleeping //"},
	}},
	{"a gate is closed under the supervisor's lock", []edit{
		{"	held := i.takePorts()\n	s.mu.Unlock()\n	return held.close(ctx)", "	defer s.mu.Unlock()\n	held := i.takePorts()\n	return held.close(ctx)"},
	}},
	{"a recovery waits for the end of what is to be ended", []edit{
		{"	if saved.State.Ended() {\n		s.recoverEnded(i, found)", "	if saved.State.Ended() || saved.State == launcher.Stopping {\n		_ = s.opts.Runner.Clear(s.ctx, i.facts.ID)\n	}\n	if saved.State.Ended() {\n		s.recoverEnded(i, found)"},
	}},
	{"an adoption that fails is taken for an end", []edit{
		{"	if ended {\n		s.recoverGone(i, gone.Exit)", "	if err != nil && !ended {\n		gone, ended = &process.GoneError{}, true\n	}\n	if ended {\n		s.recoverGone(i, gone.Exit)"},
	}},
	{"an undo does not wait for the memory of the one that goes back", []edit{
		{"	if err := c.awaitRoom(ctx, i); err != nil {\n		return err\n	}\n", ""},
	}},
	{"undone is said though nobody is awake", []edit{
		{"outcome, failed.Undo = launcherapi.OutcomeUndoFailed, asFailed(err).Err", "failed.Undo = asFailed(err).Err"},
	}},
	{"what an engine holds before a sleep that is resumed is measured when it sleeps", []edit{
		{"	if !op.resumed {\n		return before", "	if op != nil {\n		return before"},
	}},
	{"an engine that hangs outlasts the time of its swap", []edit{
		{"	r.c.tasks.Go(func() { r.answerInTime(early, done, cancel) })\n", "	_ = early\n"},
		{"	i.op.cutShort = true\n	if i.op.giveUp != nil {", "	if false {"},
	}},
	{"the port of a new one is opened when it is started", []edit{
		{"	if c.draft == nil {\n		return nil", "	if c.draft == nil || c.owns {\n		return nil"},
		{"		if err := s.portFree(c.draft.plan.PublicPort, c); err != nil {\n			return nil, err\n		}\n", ""},
	}},
	{"a place under max_instances is not kept for a swap", []edit{
		{"	if c.owns {\n		s.claims", "	if c.owns {\n		if plan.Room != nil {\n			room := *plan.Room\n			room.New = false\n			c.room = &room\n		}\n		s.claims"},
	}},
	{"budgets of GPUs that a swap does not touch refuse it", []edit{
		{"return count > was || bound != BoundMaxSleepersPerGPU && bytes > held", "return count > was || bytes > held || true"},
	}},
	{"a swap waits for min_residency of one that is gone", []edit{
		{"	enough, stop := context.WithTimeout(ctx, soon.Wait)\n", "	enough, stop := context.WithTimeout(ctx, soon.Wait)\n	<-enough.Done()\n"},
	}},
	{"a swap fails because somebody deletes the one that leaves", []edit{
		{"deleted := i.deleting || !c.s.lists(i)", "deleted := false"},
	}},
	{"keys are lost with the launcher", []edit{
		{"		c.keep(&kept{saved: saved})\n", ""},
		{"	if saved.Key != nil {\n		c.keep(&kept{saved: saved, run: r})\n	}\n", ""},
	}},
	{"the events go on telling why an instance could not be ended", []edit{
		{"		if before != \"\" {\n			s.publish(i, launcherapi.EventUpdated)\n		}\n", ""},
	}},
	{"a swap that is taken up does not claim its instances", []edit{
		{"return i.swapID == c.plan.SwapID || i.swapID == \"\" && i.found", "return i.swapID == c.plan.SwapID"},
	}},
	{"a swap that is taken up does not know the one that it has made", []edit{
		{"	if made && i.found {", "	if false {"},
	}},
	{"a swap that is taken up waits twice", []edit{
		{"	if !r.answer.IsZero() {\n		return r.answer\n	}\n", ""},
		{"settle, cancel := context.WithDeadline(ctx, settleBy)", "_ = settleBy\n	settle, cancel := context.WithDeadline(ctx, r.answerBy())"},
	}},
	{"a sleep that is resumed asks its engine without a bound", []edit{
		{"before := s.holdsBefore(ctx, i, op)", "before := s.holdsBefore(op.ctx, i, op)"},
	}},
	{"who follows the events is not told that a swap is over", []edit{
		{"		i.shownSwap = i.swapID\n		s.publish(i, launcherapi.EventUpdated)\n		return\n", "		i.shownSwap = i.swapID\n"},
	}},
	{"an engine that never says whether it sleeps is taken to be awake", []edit{
		{"			case unheard != nil: // asked again\n", "			case unheard != nil && ctx.Err() == nil: // asked again\n"},
	}},
	{"an instance is listed for as long as it is forked before anybody is told", []edit{
		{"	if forks {\n", "	if forks && s == nil {\n"},
	}},
	{"the lease of an engine without a record is ended", []edit{
		{"hold[holder(id)] = !i.released", "hold[holder(id)] = !i.released && !i.found"},
	}},
	{"the lease of a new one is not given back with its swap", []edit{
		{"	if c.owns && c.draft != nil && !made {\n		c.s.unlease(c.draft.ID)\n	}\n", "	_ = made\n"},
	}},
	{"leases of an earlier life are kept", []edit{
		{"	s.dropLeases()\n	return nil\n", "	return nil\n"},
	}},
	{"preloaders of an earlier launcher are not ended", []edit{
		{"	s.endHelpers(ctx, helpers)\n", "	_ = helpers\n"},
	}},
	{"a start waits for its preloader also when the instance has ended", []edit{
		{"	wanted := i.state == launcher.Starting\n", "	wanted := true\n"},
	}},
}

// launcherDir is the folder of the launcher, from that of this package.
const launcherDir = "../.."

// place finds the one file in which the text of an edit stands, once.
func (e edit) place(t *testing.T) string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(launcherDir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for range strings.Count(string(text), e.old) {
			found = append(found, path)
		}
		return err
	}))
	require.Len(t, found, 1, "this text should stand in one place of the launcher; where the code has changed, change the defect:\n%s", e.old)
	return found[0]
}

func TestEachDefectCanBeBroughtBack(t *testing.T) {
	for _, d := range defects {
		for _, e := range d.edits {
			e.place(t)
		}
	}
}

// overlay writes the files of a defect, and the list of them for the go command.
func (d defect) overlay(t *testing.T, dir string) (list string) {
	t.Helper()
	replaced := map[string]string{}
	for _, e := range d.edits {
		path, err := filepath.Abs(e.place(t))
		require.NoError(t, err)
		from := path
		if replaced[path] != "" {
			from = replaced[path]
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		require.NoError(t, os.WriteFile(replaced[path], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	list = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, text, 0o600))
	return list
}

// TestEachDefectIsFound builds the simulation with each defect, and plays seeds until
// an invariant breaks. SEEDS bounds them.
func TestEachDefectIsFound(t *testing.T) {
	if os.Getenv("HOTSEAT_TEST_LONG") == "" {
		t.Skip("NOT TESTED: THIS TAKES MINUTES, AND make test-sim-defects RUNS IT")
	}
	seeds := schedules.Number(t, "SEEDS", 20_000)
	only := regexp.MustCompile(os.Getenv("DEFECT"))
	for _, d := range defects {
		if only.MatchString(d.name) {
			t.Run(d.name, func(t *testing.T) { d.find(t, seeds) })
		}
	}
}

var firstBroken = regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: seed (\d+): ([^:\n]*)|seed (\d+) (hangs: [^\n]*)`)

func (d defect) find(t *testing.T, seeds uint64) {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
	defer stop()
	program := filepath.Join(dir, "simulation.test")
	built, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", d.overlay(t, dir), "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	play := exec.CommandContext(ctx, program, "-test.run", "NoSchedule", "-test.timeout", "0")
	play.Env = append(os.Environ(), fmt.Sprintf("SEEDS=%d", seeds), "FROM=1", "FIRST=1", "HANG=30s")
	output, err := play.CombinedOutput()
	broken := firstBroken.FindSubmatch(output)
	if !assert.Error(t, err, "%d schedules went well", seeds) || !assert.NotNil(t, broken, "%s", output) {
		return
	}
	t.Logf("| %s | %s%s | %s%s |", d.name, broken[1], broken[3], broken[2], broken[4])
}
