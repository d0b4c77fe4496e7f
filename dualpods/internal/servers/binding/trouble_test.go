package binding

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// steps are those of a script that begins with a requester and two minutes in
// which nothing else happens.
func steps(t *testing.T, script ...simEvent) (lines []string) {
	t.Helper()
	script = append([]simEvent{{at: 3 * time.Second, what: "create", arg: 8}}, script...)
	for _, line := range simulate(t, 1, script, rules, true).lines {
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
	assert.Greater(t, binds, tellTrouble)
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
	assert.Greater(t, unbinds, tellTrouble)
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
	assert.Equal(t, enoughSleeps, counted(lines, `"do"="sleep"`))
	assert.Equal(t, 1, counted(lines, `"do"="tell" "why"="launcher launcher-node-0-1 does not sleep: `))
	assert.Equal(t, 1, counted(lines, `"rule"="leaving, never sleeps"`))
	assert.Equal(t, 1, counted(lines, `"do"="remove finalizer"`))
}

func TestAModelOfNobodyThatRefusesToSleepIsDeletedInTheEnd(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: "refuse sleep"}, simEvent{at: 21 * time.Second, what: "damage record", arg: 159_506}, simEvent{at: 22 * time.Second, what: "force"})
	assert.Equal(t, enoughSleeps, counted(lines, `"do"="sleep" "why"="it is awake, and no requester is bound to it"`))
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

func TestARefusalToBecomeUnreadyIsToldOnceNothingElseKeepsClientsAway(t *testing.T) {
	for words, o := range map[string]Observation{
		"the requester program does not unbind: no": but(servedOne(), func(o *Observation) {
			o.Instance.State, o.Requester.Shown = "sleeping", false
			refusedOf(o, BecomeUnready, Unbind)
		}),
		"the requester program does not become unready: no": but(with("sleeping"), func(o *Observation) {
			o.SPI.Proxy.Ready = true
			refusedOf(o, BecomeUnready)
		}),
	} {
		step := Decide(o)
		assert.Equal(t, Tell, step.Do, step.Rule)
		assert.Equal(t, RequesterRefuses, step.Reason)
		assert.Equal(t, words, step.Why)
		assert.Equal(t, time.Second, step.After)
	}
}

func TestARequesterProgramThatRefusesToBecomeUnreadyIsUnboundOnceItsLauncherIsEvicted(t *testing.T) {
	lines := steps(t, simEvent{at: 20 * time.Second, what: oddUnready}, simEvent{at: 21 * time.Second, what: "evict launcher"})
	assert.Equal(t, 1, counted(lines, `"rule"="launcher gone, stays ready" "do"="unbind"`))
	// The end of the unbinding may begin a pass before the cache has the deletion.
	assert.Positive(t, counted(lines, "API server: controller deletes "))
}

func TestAProgramThatCallsItselfSomethingElseEachTimeBeginsAnewOnlyNowAndThen(t *testing.T) {
	c := &calls{troubles: map[string]Trouble{}}
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
	c.forgetTroubles(at.Add(2 * settled))
	assert.Empty(t, c.troubles)
}

func TestReasonsThatTakeTurnsAreToldLessAndLessOften(t *testing.T) {
	n, o := &nodeWork{told: map[types.UID]telling{}}, fresh()
	at, told := now, 0
	for turn := range 6000 {
		reason := []Reason{GPUsUnknown, GPUsDoNotMatch}[turn%2]
		o.Now, o.Told, o.Requester.Told = at, n.told["a"], ""
		if o.once(Step{Do: Tell, Reason: reason, Why: fmt.Sprint(turn)}).Do == Tell {
			n.toldNow("a", reason, at)
			told++
		}
		at = at.Add(20 * time.Millisecond)
	}
	assert.Greater(t, told, freely)
	assert.Less(t, told, 3*freely, "in two minutes")
	at = at.Add(2 * settled)
	o.Now, o.Told = at, n.told["a"]
	n.toldNow("a", GPUsUnknown, at)
	assert.Equal(t, 1, n.told["a"].turns, "it was told nothing for long")
}

func TestRequesterWhoseProgramNeverUnbindsIsReplaced(t *testing.T) {
	for count := range enoughUnbinds + 1 {
		o := but(servedOne(), func(o *Observation) {
			o.SPI.Proxy.Binding, o.SPI.Proxy.Ready = "earlier", false
			o.Requester.Published, o.Requester.Shown = false, false
			o.Troubles = map[Action]Trouble{Unbind: {Count: count, Why: "it refuses"}}
		})
		step := Decide(o)
		assert.Equal(t, "carries for another", step.Rule)
		if count < enoughUnbinds {
			assert.Equal(t, Unbind, step.Do, count)
			continue
		}
		assert.Equal(t, DeleteRequester, step.Do)
		assert.Equal(t, RequesterRefuses, step.Reason)
		assert.Contains(t, step.Why, "does not unbind: it refuses")
		o.SPI.Proxy.Ready = true
		assert.NotEqual(t, DeleteRequester, Decide(o).Do, "clients may use it")
	}
}

func TestUnbindingIsInVainOnlyWhileTheProgramForwardsTraffic(t *testing.T) {
	for state, inVain := range map[string]bool{requesterapi.StateBound: true, requesterapi.StateDraining: true, requesterapi.StateUnbound: false} {
		n := &nodeWork{calls: &calls{troubles: map[string]Trouble{}}}
		n.calls.count(troubleKey(Unbind, "uid"), "process", nil)
		o := Observation{Now: time.Now(), Requester: Requester{UID: "uid"}, SPI: &SPI{Proxy: requesterapi.Proxy{State: state, Instance: "process"}}}
		o.observeTroubles(n, nil, "")
		o.SPI.Proxy.State = requesterapi.StateBound // once it is bound again
		o.observeTroubles(n, nil, "")
		assert.Equal(t, inVain, o.inVain(Unbind), state)
	}
}
