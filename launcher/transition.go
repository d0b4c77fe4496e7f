package launcher

import "strings"

// Event is something that happens to an instance and may change its state.
type Event string

// The events.
const (
	EventReady        Event = "ready"         // the engine answered healthy
	EventStartFailed  Event = "start_failed"  // the process could not be started
	EventSleepAsked   Event = "sleep_asked"   // a client or a swap wants the instance to sleep
	EventSlept        Event = "slept"         // the engine says that it sleeps
	EventSleepRefused Event = "sleep_refused" // the engine stayed awake
	EventWakeAsked    Event = "wake_asked"    // a client or a swap wants the instance awake
	EventWoke         Event = "woke"          // the engine says that it is awake
	EventWakeRefused  Event = "wake_refused"  // the engine stayed asleep
	EventStopAsked    Event = "stop_asked"    // a client or a swap wants the instance ended
	EventExited       Event = "exited"        // the API server's process exited
	EventTimedOut     Event = "timed_out"     // the engine did not answer in time; its state is unknown
	EventGone         Event = "gone"          // every process of the instance has ended, and its device memory is back
)

// Events lists every event.
var Events = []Event{
	EventReady, EventStartFailed, EventSleepAsked, EventSlept, EventSleepRefused, EventWakeAsked,
	EventWoke, EventWakeRefused, EventStopAsked, EventExited, EventTimedOut, EventGone,
}

// Effect is what the supervisor does after a transition.
type Effect string

// The effects of transitions.
const (
	NoEffect   Effect = ""
	PutToSleep Effect = "put_to_sleep" // drain, then the engine's sleep sequence
	WakeUp     Effect = "wake_up"      // the engine's wake sequence
	StopTree   Effect = "stop_tree"    // SIGTERM, grace, SIGKILL of the process tree, wait for the memory
	ClearTree  Effect = "clear_tree"   // SIGKILL of the remaining processes, wait for the memory
	ClosePort  Effect = "close_port"   // give back the ports
)

// Transition is one row of the state table.
type Transition struct {
	From   State
	Event  Event
	To     State
	Effect Effect
}

// Transitions is the whole state table. A state refuses an event for which it has no
// row. spec/states.md shows the same rows.
var Transitions = []Transition{
	{Starting, EventReady, Awake, NoEffect},
	{Starting, EventStartFailed, Failed, ClearTree},
	{Starting, EventSlept, Sleeping, NoEffect},
	{Starting, EventWakeAsked, Starting, NoEffect},
	{Starting, EventStopAsked, Stopping, StopTree},
	{Starting, EventExited, Failed, ClearTree},
	{Starting, EventTimedOut, Failed, ClearTree},

	{Awake, EventSleepAsked, FallingAsleep, PutToSleep},
	{Awake, EventWakeAsked, Awake, NoEffect},
	{Awake, EventStopAsked, Stopping, StopTree},
	{Awake, EventExited, Failed, ClearTree},
	{Awake, EventTimedOut, Failed, ClearTree},

	{FallingAsleep, EventSleepAsked, FallingAsleep, NoEffect},
	{FallingAsleep, EventSlept, Sleeping, NoEffect},
	{FallingAsleep, EventSleepRefused, Awake, NoEffect},
	{FallingAsleep, EventStopAsked, Stopping, StopTree},
	{FallingAsleep, EventExited, Failed, ClearTree},
	{FallingAsleep, EventTimedOut, Failed, ClearTree},

	{Sleeping, EventSleepAsked, Sleeping, NoEffect},
	{Sleeping, EventWakeAsked, Waking, WakeUp},
	{Sleeping, EventStopAsked, Stopping, StopTree},
	{Sleeping, EventExited, Failed, ClearTree},
	{Sleeping, EventTimedOut, Failed, ClearTree},

	{Waking, EventWakeAsked, Waking, NoEffect},
	{Waking, EventWoke, Awake, NoEffect},
	{Waking, EventWakeRefused, Sleeping, NoEffect},
	{Waking, EventStopAsked, Stopping, StopTree},
	{Waking, EventExited, Failed, ClearTree},
	{Waking, EventTimedOut, Failed, ClearTree},

	{Stopping, EventStopAsked, Stopping, NoEffect},
	{Stopping, EventExited, Stopping, NoEffect},
	{Stopping, EventGone, Stopped, ClosePort},

	{Stopped, EventStopAsked, Stopped, NoEffect},

	{Failed, EventStopAsked, Failed, NoEffect},
	{Failed, EventExited, Failed, NoEffect},
	{Failed, EventGone, Failed, ClosePort},
}

type stateEvent struct {
	state State
	event Event
}

var transitionOf = func() map[stateEvent]Transition {
	m := make(map[stateEvent]Transition, len(Transitions))
	for _, t := range Transitions {
		m[stateEvent{t.From, t.Event}] = t
	}
	return m
}()

// Next returns the row for an event in a state. If the state refuses the event, Next
// returns an error with code conflict.
func Next(from State, event Event) (Transition, error) {
	t, ok := transitionOf[stateEvent{from, event}]
	if !ok {
		return Transition{}, notAllowed(from, event)
	}
	return t, nil
}

// notAllowed says that a state does not allow an event, and for an event that a
// client asks for also what the client can do.
func notAllowed(from State, event Event) error {
	verb, ok := map[Event]string{EventSleepAsked: "sleep", EventWakeAsked: "wake"}[event]
	if !ok {
		return Conflictf("the event %s is not allowed while the instance is %s", event, from)
	}
	remedy := "delete it and create it again"
	switch from {
	case Stopped, Failed:
		remedy = "swap to it, which starts it again, or delete it"
	case Starting, Waking:
		remedy = "wait until it is awake, or delete it"
	case FallingAsleep:
		remedy = "wait until it is asleep"
	case Awake, Sleeping, Stopping:
	}
	return Conflictf("cannot %s: the instance is %s; %s", verb, strings.ReplaceAll(string(from), "_", " "), remedy)
}
