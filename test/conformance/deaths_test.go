package conformance

import (
	"bufio"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// death is one way in which an engine's process ends.
type death struct {
	name   string
	title  string // the victim; "" is the API server
	signal syscall.Signal
	ask    step // in flight meanwhile, if it has a name
}

// aftermath is what a supervisor and a client see of a death.
type aftermath struct {
	Death string `json:"death"`
	// Before names the processes below the API server.
	Before []string `json:"before"`
	// Health is each status of /health from the death on that differs from the
	// one before, but for what may come or not: a 200 at first, and a 503 of an
	// API server that was told to end (vLLM stops its engine in a thread
	// before it closes its socket, and /health fails once the engine's output
	// handler is gone; source: launchers/launcher.py, handle_shutdown).
	Health   []string `json:"health"`
	ExitCode int      `json:"exit_code"`
	// Left names the processes that are there for good.
	Left     []string  `json:"left"`
	InFlight *exchange `json:"in_flight,omitempty"`
}

var (
	workerKilled = death{"the Worker is killed while a stream is in flight", "Worker", syscall.SIGKILL, completion("in flight when the Worker is killed", endlessStream)}
	coreKilled   = death{"EngineCore is killed", "EngineCore", syscall.SIGKILL, step{}}
	apiKilled    = death{"the API server is killed", "", syscall.SIGKILL, step{}}
	terminated   = death{"SIGTERM while awake", "", syscall.SIGTERM, step{}}
)

// die lets a process of the engine die and writes down what comes of it.
func (e *engine) die(d death) aftermath {
	e.t.Helper()
	seen := aftermath{Death: d.name, Before: e.titles()}
	pid := e.server.PID()
	if d.title != "" {
		pid = e.find(d.title)
	}
	inFlight := func() *exchange { return nil }
	if d.ask.name != "" {
		x, body := e.open(d.ask)
		defer body.Close()
		reader := bufio.NewReader(body)
		x = e.events(x, reader, firstEvents)
		inFlight = func() *exchange {
			x := e.read(d.ask, x, reader)
			return &x
		}
	}
	require.NoError(e.t, syscall.Kill(pid, d.signal))
	seen.InFlight = inFlight()
	seen.Health = e.healthUntilGone(d)
	seen.ExitCode = e.exitCode()
	seen.Left = e.leftForGood()
	return seen
}

// healthUntilGone asks for /health until the process has ended and nobody
// answers.
func (e *engine) healthUntilGone(d death) []string {
	mayCome := []string{"200"}
	if d.signal == syscall.SIGTERM {
		mayCome = append(mayCome, "503")
	}
	var seen []string
	e.eventually("nobody answers", func() bool {
		ended := e.ended()
		h, err := e.health()
		if len(seen) == 0 && slices.Contains(mayCome, h) {
			return false
		}
		if len(seen) == 0 || seen[len(seen)-1] != h {
			seen = append(seen, h)
			e.t.Logf("%s: /health is %s (%v)", d.name, h, err)
		}
		return ended && h == "none"
	})
	return seen
}

// leftForGood gives the processes that are still there when nothing changed
// for a while.
func (e *engine) leftForGood() []string {
	while := patience.Wait() / 18
	left, since := e.titles(), time.Now()
	e.eventually("no more processes end", func() bool {
		now := e.titles()
		if !slices.Equal(now, left) {
			left, since = now, time.Now()
		}
		return len(left) == 0 || time.Since(since) > while
	})
	return left
}

func TestTheStandInDiesAsVLLM(t *testing.T) {
	t.Parallel()
	var seen []aftermath
	for _, d := range []death{workerKilled, coreKilled, apiKilled, terminated} {
		e := standIn.serve(t, endlessEnv, endlessArgs...)
		e.ready()
		seen = append(seen, e.die(d))
	}
	compare(t, "deaths", seen, deathName)
}

func deathName(a aftermath) string { return a.Death }
