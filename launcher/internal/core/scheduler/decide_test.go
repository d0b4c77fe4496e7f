package scheduler

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	turn = 30 * time.Second
	gib  = uint64(1) << 30
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// model returns a model of one GPU without an instance.
func model(name string, change ...func(*Model)) Model {
	m := Model{Name: name, Count: 1}
	for _, c := range change {
		c(&m)
	}
	return m
}

// on gives a model an instance that entered its state an hour ago and was used last then.
func on(state launcher.State, gpus ...string) func(*Model) {
	return func(m *Model) {
		m.State, m.On, m.Since, m.LastUsed = state, gpus, ago(time.Hour), ago(time.Hour)
		m.Count = max(1, len(gpus))
	}
}

func awake(gpus ...string) func(*Model)  { return on(launcher.Awake, gpus...) }
func asleep(gpus ...string) func(*Model) { return on(launcher.Sleeping, gpus...) }
func since(d time.Duration) func(*Model) { return func(m *Model) { m.Since = ago(d) } }
func used(d time.Duration) func(*Model)  { return func(m *Model) { m.LastUsed = ago(d) } }
func takes(bytes uint64) func(*Model)    { return func(m *Model) { m.Bytes = bytes } }
func pinned(m *Model)                    { m.Pinned = true }
func retired(m *Model)                   { m.Retired = true }
func hindered(m *Model)                  { m.Hindered = "somebody has its id" }
func holds(gpu string, bytes uint64) func(*Model) {
	return func(m *Model) { m.Residue = map[string]uint64{gpu: bytes} }
}
func preload(m *Model) { m.Preload = true }
func busy(m *Model)    { m.Busy = true }
func repeats(m *Model) { m.Repeats = true }
func answers(m *Model) { m.InFlight = 1 }
func wide(m *Model)    { m.Count = 2 }
func bound(gpus ...string) func(*Model) {
	return func(m *Model) { m.GPUs, m.Count = gpus, len(gpus) }
}
func priority(p int) func(*Model)          { return func(m *Model) { m.Priority = p } }
func returns(d time.Duration) func(*Model) { return func(m *Model) { m.Return = d } }
func sleepsAfter(d time.Duration) func(*Model) {
	return func(m *Model) { m.SleepAfter, m.SleepLevel = d, 2 }
}
func stopsAfter(d time.Duration) func(*Model) { return func(m *Model) { m.StopAfter = d } }

// waits has requests wait for a model.
func waits(d time.Duration) func(*Model) {
	return func(m *Model) { m.Waiting, m.WaitingSince = 1, ago(d) }
}

// world returns a world of so many GPUs, a, b and so on, of 80 GiB.
func world(gpus int, models ...Model) World {
	w := World{Now: now, Models: models, Turn: turn}
	for n := range gpus {
		w.GPUs = append(w.GPUs, GPU{UUID: string(rune('a' + n)), TotalBytes: 80 * gib})
	}
	return w
}

// text is a decision as lines: actions, then waits, then when to look again.
func text(d Decision) string {
	var lines []string
	for _, a := range d.Actions {
		line := fmt.Sprintf("%s: %s %s", a.Row, a.Kind, a.Model)
		if len(a.GPUs) > 0 {
			line += " on " + strings.Join(a.GPUs, "")
		}
		if len(a.Out) > 0 {
			line += " for " + strings.Join(a.Out, ",")
		}
		if a.Level > 0 {
			line += fmt.Sprintf(" level %d", a.Level)
		}
		lines = append(lines, line)
	}
	for _, w := range d.Waits {
		line := fmt.Sprintf("%s: %s waits", w.Row, w.Model)
		if !w.Until.IsZero() {
			line += " " + w.Until.Sub(now).String()
		}
		if w.Hopeless {
			line += " in vain"
		}
		lines = append(lines, line)
	}
	if !d.Next.IsZero() {
		lines = append(lines, "again in "+d.Next.Sub(now).String())
	}
	return strings.Join(lines, "; ")
}

// foreign has other processes use memory of the first GPU.
func foreign(w World, bytes uint64) World {
	w.GPUs[0].ForeignBytes = bytes
	return w
}

func TestEachRowOfScheduling(t *testing.T) {
	a, b := awake("a"), awake("b")
	tried := map[string]bool{}
	for name, c := range map[string]struct {
		world World
		want  string
	}{
		// Row 13: sleeps on GPU b, and both are free.
		"the GPU where it sleeps is free":     {world(2, model("x", asleep("b"), waits(0))), "wakes: wake x on b"},
		"it has no instance, and one is free": {world(2, model("o", a), model("x", waits(0))), "starts: start x on b"},
		"its instance has ended":              {world(1, model("x", on(launcher.Failed, "a"), waits(0))), "starts: start x on a"},
		"it needs no GPU":                     {world(0, model("o", awake()), model("x", func(m *Model) { m.Count = 0 }, waits(0))), "starts: start x"},
		"it is bound to a GPU":                {world(2, model("x", bound("b"), waits(0))), "starts: start x on b"},
		// Row 14: both are taken.
		"the one used longest ago leaves":      {world(2, model("o", a, used(time.Minute)), model("p", b, used(time.Hour)), model("x", waits(0))), "starts in turn: start x on b for p"},
		"the one leaves whose return is cheap": {world(2, model("o", a, used(time.Minute), returns(time.Second)), model("p", b, used(time.Hour), returns(5*time.Minute)), model("x", waits(0))), "starts in turn: start x on a for o"},
		"a sleeper comes back in its turn":     {world(1, model("o", a), model("x", asleep("a"), waits(0))), "wakes in turn: wake x on a for o"},
		"a pinned one stays":                   {world(2, model("o", a, pinned), model("p", b, used(time.Minute)), model("x", waits(0))), "starts in turn: start x on b for p"},
		"all are pinned":                       {world(1, model("o", a, pinned), model("x", waits(0))), "pinned there: x waits"},
		"an answer is drained after the turn":  {world(1, model("o", a, answers), model("x", waits(0))), "starts in turn: start x on a for o"},
		// Row 15: several on one GPU.
		"both fit on one GPU":                {world(1, model("o", a, takes(40*gib)), model("x", waits(0), takes(40*gib))), "starts: start x on a"},
		"sleepers hold what both would need": {asleepBytes(world(1, model("o", a, takes(40*gib)), model("x", waits(0), takes(40*gib))), gib), "starts in turn: start x on a for o"},
		"what it holds itself counts once":   {asleepBytes(world(1, model("o", a, takes(40*gib)), model("x", asleep("a"), holds("a", gib), waits(0), takes(40*gib))), gib), "wakes: wake x on a"},
		"what another sleeper holds counts":  {asleepBytes(world(1, model("o", a, takes(40*gib)), model("x", asleep("a"), holds("b", gib), waits(0), takes(40*gib))), gib), "wakes in turn: wake x on a for o"},
		"what it needs is not known":         {world(1, model("o", a, takes(40*gib)), model("x", waits(0))), "starts in turn: start x on a for o"},
		"the wider one leaves with all its GPUs": {world(2, model("o", awake("a", "b")), model("x", waits(time.Second)), model("y", waits(0))),
			"starts in turn: start x on a for o; GPU changes hands: y waits"},
		// Row 16: two GPUs at once, and back.
		"a wide one gets the GPUs of two":        {world(2, model("o", a), model("p", b), model("x", wide, waits(0))), "starts in turn: start x on ab for o,p"},
		"a wide one keeps together what is free": {world(4, model("o", awake("a", "c")), model("p", b, used(time.Minute)), model("q", awake("d"), used(time.Minute)), model("x", wide, waits(0))), "starts in turn: start x on ac for o"},
		"the turn of one of two is not over":     {world(2, model("o", a), model("p", b, since(10*time.Second), answers), model("x", wide, waits(time.Second)), model("y", waits(0))), "turn of another: x waits 20s; GPU changes hands: y waits; again in 20s"},
		"there are too few GPUs":                 {world(1, model("x", wide, waits(0))), "too few GPUs: x waits in vain"},
		"its GPU is not there":                   {world(1, model("x", bound("z"), waits(0))), "no such GPU: x waits in vain"},
		// Row 17: turns.
		"the turn is not over":                           {world(1, model("o", a, since(10*time.Second), answers), model("x", waits(0))), "turn of another: x waits 20s; again in 20s"},
		"requests wait for its turn too":                 {world(1, model("o", a, since(10*time.Second), waits(0)), model("x", waits(0))), "turn of another: x waits 20s; again in 20s"},
		"it answered just now":                           {world(1, model("o", a, since(10*time.Second), used(200*time.Millisecond), repeats), model("x", waits(0))), "turn of another: x waits 800ms; again in 800ms"},
		"it answered just before its turn is over":       {world(1, model("o", a, since(turn-100*time.Millisecond), used(200*time.Millisecond), repeats), model("x", waits(0))), "turn of another: x waits 100ms; again in 100ms"},
		"it is not in use":                               {world(1, model("o", a, since(10*time.Second), used(2*time.Second)), model("x", waits(0))), "starts in turn: start x on a for o"},
		"the minimum residency is not over":              {resides(world(1, model("o", a, since(10*time.Second), used(2*time.Second)), model("x", waits(0)))), "turn of another: x waits 5s; again in 5s"},
		"the sooner turn is awaited":                     {world(2, model("o", a, since(5*time.Second), answers), model("p", b, since(10*time.Second), answers), model("x", waits(0))), "turn of another: x waits 20s; again in 20s"},
		"those that wait longer go first":                {world(1, model("o", a), model("x", waits(time.Second)), model("y", waits(time.Minute))), "starts in turn: start y on a for o; GPU changes hands: x waits"},
		"requests left from its last turn give no place": {world(1, model("o", a), model("x", waits(time.Minute)), model("y", asleep("a"), since(time.Second), waits(time.Hour))), "starts in turn: start x on a for o; GPU changes hands: y waits"},
		"the one that was awake longest leaves":          {world(2, model("o", a, since(time.Minute), answers), model("p", b, since(time.Hour), answers), model("x", waits(0))), "starts in turn: start x on b for p"},
		"a GPU changes hands":                            {world(1, model("o", on(launcher.FallingAsleep, "a")), model("x", waits(0))), "GPU changes hands: x waits"},
		"a client swaps there":                           {world(1, model("o", a, busy), model("x", waits(0))), "GPU changes hands: x waits"},
		"it is coming in":                                {world(1, model("x", on(launcher.Waking, "a"), waits(0))), ""},
		// Row 18: the memory of others.
		"others use its memory":                               {foreign(world(1, model("x", takes(70*gib), waits(0))), 11*gib), "no memory: x waits in vain"},
		"others leave enough memory":                          {foreign(world(1, model("x", takes(70*gib), waits(0))), 10*gib), "starts: start x on a"},
		"others use a little, and what it needs is not known": {foreign(world(1, model("x", waits(0))), gib), "starts: start x on a"},
		"others use the memory of one GPU":                    {foreign(world(2, model("o", b), model("x", takes(70*gib), waits(0))), 11*gib), "starts in turn: start x on b for o"},
		"others use the memory where it sleeps":               {foreign(world(2, model("x", asleep("a"), takes(70*gib), waits(0))), 11*gib), "moves: stop x"},
		// A sleeper moves.
		"a pinned one is where it sleeps":                       {world(2, model("o", a, pinned), model("x", asleep("a"), waits(0))), "moves: stop x"},
		"and elsewhere it is not its turn yet":                  {world(2, model("o", a, pinned), model("p", b, since(10*time.Second), answers), model("x", asleep("a"), waits(0))), "turn of another: x waits 20s; again in 20s"},
		"and it is bound to that GPU":                           {world(2, model("o", a, pinned), model("x", asleep("a"), bound("a"), waits(0))), "pinned there: x waits"},
		"a higher one is hammered where it sleeps":              {world(2, model("o", a, answers, priority(1)), model("x", asleep("a"), waits(0))), "moves: stop x"},
		"a higher one has answered where it sleeps":             {world(2, model("o", a, used(0), repeats, priority(1)), model("x", asleep("a"), waits(0))), "higher priority: x waits 1s; again in 1s"},
		"it takes turns with another, and a GPU is free":        {world(2, model("o", a, answers), model("x", asleep("a"), since(59*time.Second), waits(0))), "moves: stop x"},
		"it waits for its turn again, and a GPU is free":        {world(2, model("o", a, since(time.Second), answers), model("x", asleep("a"), since(time.Second), waits(0))), "moves: stop x"},
		"it takes turns with another, and is bound":             {world(2, model("o", a, answers), model("x", asleep("a"), bound("a"), since(time.Second), waits(0))), "wakes in turn: wake x on a for o"},
		"it takes turns with another, and no GPU is free":       {world(2, model("o", a, answers), model("p", b), model("x", asleep("a"), since(time.Second), waits(0))), "wakes in turn: wake x on a for o"},
		"it left a while ago, and a GPU is free":                {world(2, model("o", a, answers), model("x", asleep("a"), since(time.Minute), waits(0))), "wakes in turn: wake x on a for o"},
		"it left for one that is not in use, and a GPU is free": {world(2, model("o", a), model("x", asleep("a"), since(time.Second), waits(0))), "wakes in turn: wake x on a for o"},
		"it waits for its turn where it sleeps":                 {world(2, model("o", a, since(10*time.Second), answers), model("x", asleep("a"), waits(0))), "turn of another: x waits 20s; again in 20s"},
		// Row 20: priority.
		"a higher one is in use":                     {world(1, model("o", a, answers, priority(1)), model("x", waits(0))), "higher priority: x waits"},
		"a higher one is not in use":                 {world(1, model("o", a, priority(1)), model("x", waits(0))), "starts in turn: start x on a for o"},
		"a higher one waits too":                     {world(1, model("o", a), model("x", waits(time.Minute)), model("y", waits(0), priority(1))), "starts in turn: start y on a for o; GPU changes hands: x waits"},
		"a lower one has its turn":                   {world(1, model("o", a, since(10*time.Second), answers), model("x", waits(0), priority(1))), "turn of another: x waits 20s; again in 20s"},
		"GPUs beside a higher one are not kept free": {world(1, model("o", a, answers, priority(1), takes(40*gib)), model("x", waits(time.Minute)), model("y", takes(gib), waits(0))), "starts: start y on a; higher priority: x waits"},
		// Failures.
		"somebody has its id": {world(1, model("x", waits(0), hindered)), "hindered: x waits in vain"},
		"it has failed":       {world(1, model("x", waits(0), func(m *Model) { m.NotBefore = now.Add(time.Second) })), "backs off: x waits 1s; again in 1s"},
		// Row 22: preload.
		"there is room to preload":                 {world(2, model("o", a), model("x", asleep("b"), preload)), "wakes: wake x on b"},
		"there is no room to preload":              {world(1, model("o", a), model("x", preload)), "no room to preload: x waits"},
		"it is to be preloaded, and requests wait": {world(1, model("o", a), model("x", preload, waits(0))), "starts in turn: start x on a for o"},
		"requests come before preloads":            {world(1, model("x", preload, priority(9)), model("y", waits(0))), "starts: start y on a; GPU changes hands: x waits"},
		// Row 21: sleep_after and stop_after.
		"it was not used for sleep_after": {world(1, model("x", a, used(time.Minute), sleepsAfter(time.Minute))), "sleep_after is over: sleep x level 2"},
		"it will be sleep_after":          {world(1, model("x", a, used(time.Second), sleepsAfter(time.Minute), stopsAfter(time.Hour))), "again in 59s"},
		"stop_after is the shorter one":   {world(1, model("x", a, used(time.Second), sleepsAfter(time.Hour), stopsAfter(time.Minute))), "again in 59s"},
		"it is awake since a moment":      {world(1, model("x", a, since(time.Second), sleepsAfter(time.Minute))), "again in 59s"},
		"it was not used for stop_after":  {world(1, model("x", asleep("a"), used(time.Hour), sleepsAfter(time.Minute), stopsAfter(time.Hour))), "stop_after is over: stop x"},
		"it is retired and unused":        {world(1, model("x", a, retired, preload)), "retired: stop x"},
		"a sleeper is retired":            {world(1, model("x", asleep("a"), retired, preload)), "retired: stop x"},
		"it is retired and has failed":    {world(1, model("x", on(launcher.Failed, "a"), retired)), "retired: stop x"},
		"it has failed and stays":         {world(1, model("x", on(launcher.Failed, "a"))), ""},
		"it is retired and starts":        {world(1, model("x", on(launcher.Starting, "a"), retired)), "retired: stop x"},
		"a swap starts what is retired":   {world(1, model("x", on(launcher.Starting, "a"), retired, busy)), ""},
		"what is retired starts for some": {world(1, model("x", on(launcher.Starting, "a"), retired, waits(0))), ""},
		"it is retired and in use":        {world(1, model("x", a, answers, retired)), "again in 10s"},
		"it was never used":               {world(1, model("x", asleep("a"), since(time.Minute), func(m *Model) { m.LastUsed = time.Time{} }, stopsAfter(time.Hour))), "again in 59m0s"},
		"a sleeper does not sleep again":  {world(1, model("x", asleep("a"), sleepsAfter(time.Minute))), ""},
		"it is in use for long":           {world(1, model("x", a, answers, sleepsAfter(time.Minute))), "again in 1m0s"},
		"it is to be preloaded always":    {world(1, model("x", a, preload, sleepsAfter(time.Minute), stopsAfter(time.Minute))), ""},
		"its sleep has failed":            {world(1, model("x", a, sleepsAfter(time.Minute), func(m *Model) { m.NotBefore = now.Add(time.Second) })), "again in 1s"},
		"it leaves for another anyway":    {world(1, model("o", a, sleepsAfter(time.Minute)), model("x", waits(0))), "starts in turn: start x on a for o"},
		"it is changed by a client":       {world(1, model("x", a, busy, sleepsAfter(time.Minute))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := text(Decide(c.world))
			assert.Equal(t, c.want, got)
			for _, row := range rows {
				tried[row] = tried[row] || strings.Contains("; "+got, "; "+row+":")
			}
			d := &decider{World: c.world, taken: map[string]string{}}
			for _, wait := range Decide(c.world).Actions {
				d.take(wait.GPUs, wait.Model)
			}
			for n := range d.Models {
				row, _ := d.policy(&d.Models[n])
				tried[row] = true
			}
		})
	}
	for _, row := range rows {
		assert.True(t, tried[row], "no case has the row %q", row)
	}
}

func asleepBytes(w World, bytes uint64) World {
	w.GPUs[0].AsleepBytes = bytes
	return w
}

func resides(w World) World {
	w.MinResidency = 15 * time.Second
	return w
}

// rows are those of both tables, in the order of spec/scheduling.md.
var rows = []string{
	rowBacksOff, rowWakes, rowStarts, rowWakesInTurn, rowStartsInTurn, rowMoves, rowTurn, rowHands, rowHigher, rowPinned, rowPreload, rowNoMemory, rowNoSuchGPU, rowTooFewGPUs, rowHindered,
	rowNeither, rowPreloaded, rowInUse, rowLeaving, rowRefused, rowRetired, rowStopTime, rowSleepTime, rowStays,
}

func TestTablesOfTheDocumentHaveTheRows(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/scheduling.md")
	require.NoError(t, err)
	var written []string
	for _, table := range regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(table[1]) {
			written = append(written, strings.TrimSpace(strings.Split(line, "|")[1]))
		}
	}
	assert.Equal(t, rows, written)
	code, err := os.ReadFile("decide.go")
	require.NoError(t, err)
	var coded []string
	for _, found := range regexp.MustCompile(`(?m)^\trow\w+ += "(.*)"$`).FindAllStringSubmatch(string(code), -1) {
		coded = append(coded, found[1])
	}
	slices.Sort(coded)
	assert.Equal(t, slices.Sorted(slices.Values(rows)), coded)
}

func TestReasonsSayTheNumbers(t *testing.T) {
	for want, w := range map[string]World{
		"it needs 70.0 GiB of GPU a, of which other processes than the launcher's use 11.0 GiB of 80.0 GiB": foreign(world(1, model("x", takes(70*gib), waits(0))), 11*gib),
		"it needs 2 GPUs, and the launcher has 1":                                                           world(1, model("x", wide, waits(0))),
		"o has its turn there": world(1, model("o", awake("a"), since(0), answers), model("x", waits(0))),
		"it is to be preloaded, and others are awake there: o, p": world(1, model("o", awake("a"), takes(gib)), model("p", awake("a"), takes(gib)), model("x", preload)),
	} {
		waits := Decide(w).Waits
		require.Len(t, waits, 1)
		assert.Equal(t, want, waits[0].Reason)
	}
}
