package binding

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// steps are those of a script that begins with a requester and two minutes in
// which nothing else happens.
func steps(t *testing.T, script ...simEvent) (lines []string) {
	t.Helper()
	script = append([]simEvent{{at: 3 * time.Second, what: "create", arg: 8}}, script...)
	for _, line := range simulate(t, 1, script, decide.Tables, true).lines {
		if strings.Contains(line, "all is mended") {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// counted is how many lines have these words.
func counted(lines []string, words string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

func TestARequesterProgramThatRefusesToBindIsAskedLessAndLessOftenAndPeopleAreTold(t *testing.T) {
	lines := steps(t, simEvent{at: 3100 * time.Millisecond, what: oddBind})
	binds := counted(lines, `"do"="bind"`)
	assert.Greater(t, binds, decide.TellTrouble)
	assert.LessOrEqual(t, binds, 9)
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="the requester program does not bind: `), "it is told once")
}

func TestAServedRequesterWhoseNewProgramRefusesToBindIsShownNoMore(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: oddBind}, simEvent{at: 21 * time.Second, what: "restart program"})
	assert.Equal(t, 2, counted(lines, `"rule"="not carried, shown" "do"="retract"`), "labels, and the gate")
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="the requester program does not bind: `), "it is told once")
	assert.Zero(t, counted(lines, "VIOLATED"))
}

func TestAServedRequesterWhoseNewProgramBindsAtOnceIsShownOn(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: "restart program"})
	assert.Equal(t, 2, counted(lines, `"do"="bind"`))
	assert.Zero(t, counted(lines, `"do"="retract"`))
	assert.Equal(t, 1, counted(lines, `"do"="publish"`))
}

func TestARequesterProgramThatUnbindsInVainIsAskedLessAndLessOftenAndPeopleAreTold(t *testing.T) {
	lines := steps(t, simEvent{at: 3100 * time.Millisecond, what: oddProxy})
	unbinds := counted(lines, `"do"="unbind"`)
	assert.Greater(t, unbinds, decide.TellTrouble)
	assert.LessOrEqual(t, unbinds, 9)
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="the requester program does not unbind: `+nothingChanged), "it is told once")
}

func TestARefusalInEverOtherWordsIsToldLessAndLessOften(t *testing.T) {
	tells := counted(steps(t, simEvent{at: 3100 * time.Millisecond, what: oddRefusal}), `"rule"="GPUs unknown" "do"="tell"`)
	assert.Greater(t, tells, 3)
	assert.LessOrEqual(t, tells, 10)
}

func TestAModelThatRefusesToSleepIsDeletedInTheEnd(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: "refuse sleep"}, simEvent{at: 21 * time.Second, what: "delete"})
	assert.Equal(t, 5, counted(lines, `"do"="sleep"`))
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="launcher launcher-node-0-1 does not sleep: `))
	assert.Equal(t, 1, counted(lines, `"rule"="resting, never sleeps"`))
	assert.Equal(t, 1, counted(lines, `"do"="remove finalizer"`))
}

func TestAModelOfNobodyThatRefusesToSleepIsDeletedInTheEnd(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: "refuse sleep"}, simEvent{at: 21 * time.Second, what: "damage record", arg: 159_506}, simEvent{at: 22 * time.Second, what: "force"})
	assert.Equal(t, 5, counted(lines, `"do"="sleep" "why"="it is awake, and no requester is bound to it"`))
	assert.Equal(t, 1, counted(lines, `"do"="delete instance" "why"="it is awake, does not sleep, and no requester is bound to it"`))
}

func TestARequesterProgramThatRefusesToBecomeUnreadyIsUnboundAndServedAgain(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: oddUnready}, simEvent{at: 21 * time.Second, what: "sleep by hand"})
	assert.Equal(t, 1, counted(lines, `"do"="become unready"`))
	assert.Equal(t, 1, counted(lines, `"rule"="not awake, stays ready" "do"="unbind"`))
	assert.Equal(t, 2, counted(lines, `"rule"="not awake, shown" "do"="retract"`), "labels, and the gate")
	assert.Equal(t, 2, counted(lines, `"do"="publish"`), "it serves again")
	assert.Zero(t, counted(lines, `"do"="tell" "why"="the requester program`))
}

func TestPeopleAreToldOfARequesterProgramThatRefusesToBecomeUnreadyAndToUnbind(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: oddStays}, simEvent{at: 21 * time.Second, what: "sleep by hand"}, simEvent{at: 25 * time.Second, what: "delete"})
	assert.Equal(t, 2, counted(lines, `"rule"="not awake, shown" "do"="retract"`), "labels, and the gate")
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="the requester program does not unbind: `))
	assert.Greater(t, counted(lines, `"do"="become unready"`), 1, "it is asked again")
}

func TestARequesterProgramThatRefusesToBecomeUnreadyIsUnboundOnceItsLauncherIsEvicted(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: oddUnready}, simEvent{at: 21 * time.Second, what: "evict launcher"})
	assert.Equal(t, 1, counted(lines, `"rule"="launcher gone, stays ready" "do"="unbind"`))
	// The end of the unbinding may begin a pass before the cache has the deletion.
	assert.Positive(t, counted(lines, "API server: controller deletes "))
}

func TestAProgramThatCallsItselfSomethingElseEachTimeBeginsAnewOnlyNowAndThen(t *testing.T) {
	c := &calls{troubles: map[string]callTrouble{}}
	at, renewed := time.Now(), 0
	for n := range 100 {
		process := fmt.Sprint("process-", n)
		if c.troubleWith("bind/a", process, at).Count == 0 {
			renewed++
		}
		c.count("bind/a", process, errors.New("no"))
		at = at.Add(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, renewed, 3, "the first, a new one, and one after ten seconds")
	assert.Greater(t, c.trouble("bind/a").Count, 50)
	assert.Len(t, c.troubles, 1)
	c.forgetTroubles(at.Add(2 * decide.Settled))
	assert.Empty(t, c.troubles)
}

func TestReasonsThatTakeTurnsAreToldLessAndLessOften(t *testing.T) {
	n, o := &nodeWork{told: map[types.UID]decide.Telling{}}, fresh()
	at, told := now, 0
	for turn := range 6000 {
		reason := []decide.Reason{decide.GPUsUnknown, decide.GPUsDoNotMatch}[turn%2]
		o.Now, o.Told, o.Requester.Told = at, n.told["a"], ""
		if o.Once(decide.Step{Do: decide.Tell, Reason: reason, Why: fmt.Sprint(turn)}).Do == decide.Tell {
			n.toldNow("a", reason, at)
			told++
		}
		at = at.Add(20 * time.Millisecond)
	}
	assert.Greater(t, told, decide.Freely)
	assert.Less(t, told, 3*decide.Freely, "in two minutes")
	at = at.Add(2 * decide.Settled)
	o.Now, o.Told = at, n.told["a"]
	n.toldNow("a", decide.GPUsUnknown, at)
	assert.Equal(t, 1, n.told["a"].Turns, "it was told nothing for long")
}

func TestUnbindingIsInVainOnlyWhileTheProgramForwardsTraffic(t *testing.T) {
	for state, inVain := range map[string]bool{requesterapi.StateBound: true, requesterapi.StateDraining: true, requesterapi.StateUnbound: false} {
		n := &nodeWork{calls: &calls{troubles: map[string]callTrouble{}}}
		n.calls.count(troubleKey(decide.Unbind, "uid"), "process", nil)
		o := decide.Observation{Common: decide.Common{Now: time.Now(), Requester: decide.Requester{UID: "uid"}, SPI: &decide.SPI{Proxy: requesterapi.Proxy{State: state, Instance: "process"}}}}
		observeTroubles(&o, n, nil, "")
		o.SPI.Proxy.State = requesterapi.StateBound // once it is bound again
		observeTroubles(&o, n, nil, "")
		assert.Equal(t, inVain, o.Now.Before(o.Troubles[decide.Unbind].Until), state)
	}
}
