package launcher

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSpecListsTheTransitionsOfTheCode(t *testing.T) {
	spec, err := os.ReadFile("../spec/states.md")
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `([a-z_]+)` \\| `([a-z_]+)` \\| (.*) \\|$")
	var listed []string
	for _, m := range row.FindAllStringSubmatch(string(spec), -1) {
		listed = append(listed, strings.Join(m[1:], " | "))
	}
	var code []string
	for _, tr := range Transitions {
		code = append(code, strings.Join([]string{string(tr.From), string(tr.Event), string(tr.To), string(tr.Effect)}, " | "))
	}
	assert.Equal(t, code, listed, "the rows of the code, then those of spec/states.md")
}

func TestSpecDescribesEveryStateAndEvent(t *testing.T) {
	spec, err := os.ReadFile("../spec/states.md")
	require.NoError(t, err)
	for _, s := range States {
		assert.Contains(t, string(spec), "\n- **"+string(s)+"**", "state %s", s)
	}
	for _, e := range Events {
		assert.Contains(t, string(spec), "\n- *"+string(e)+"*", "event %s", e)
	}
}

func TestNoStateHasTwoRowsForOneEvent(t *testing.T) {
	seen := map[stateEvent]bool{}
	for _, tr := range Transitions {
		key := stateEvent{tr.From, tr.Event}
		assert.False(t, seen[key], "%v", tr)
		seen[key] = true
		assert.Contains(t, States, tr.To)
		assert.Contains(t, Events, tr.Event)
	}
}

func TestEveryStateAcceptsAStopAndAnExit(t *testing.T) {
	for _, s := range States {
		_, err := Next(s, EventStopAsked)
		assert.NoError(t, err, "stop while %s", s)
		if s == Stopped {
			continue
		}
		tr, err := Next(s, EventExited)
		require.NoError(t, err, "exit while %s", s)
		if s != Stopping {
			assert.Equal(t, Failed, tr.To, "an exit that nobody asked for while %s", s)
		}
	}
}

func TestEndedInstanceNeverComesBack(t *testing.T) {
	for _, tr := range Transitions {
		if tr.From.Ended() {
			assert.Equal(t, tr.From, tr.To, "%v", tr)
		}
	}
}

func TestEventWithoutARowIsAConflict(t *testing.T) {
	_, err := Next(Starting, EventSleepAsked)
	require.Error(t, err)
	assert.Equal(t, launcherapi.CodeConflict, CodeOf(err))
	assert.Contains(t, err.Error(), "starting")
}

func TestStatusIsStoppedOnlyForEndedInstances(t *testing.T) {
	for _, s := range States {
		want := launcherapi.StatusRunning
		if s.Ended() {
			want = launcherapi.StatusStopped
		}
		assert.Equal(t, want, s.Status(), s)
	}
}

func TestRefusedVerbSaysWhatToDo(t *testing.T) {
	for want, c := range map[string]struct {
		state State
		event Event
	}{
		"cannot sleep: the instance is starting; wait until it is awake, or delete it":         {Starting, EventSleepAsked},
		"cannot sleep: the instance is waking; wait until it is awake, or delete it":           {Waking, EventSleepAsked},
		"cannot wake: the instance is falling asleep; wait until it is asleep":                 {FallingAsleep, EventWakeAsked},
		"cannot wake: the instance is failed; swap to it, which starts it again, or delete it": {Failed, EventWakeAsked},
		"the event slept is not allowed while the instance is stopped":                         {Stopped, EventSlept},
	} {
		_, err := Next(c.state, c.event)
		require.EqualError(t, err, want)
		require.Equal(t, launcherapi.CodeConflict, CodeOf(err))
	}
}
