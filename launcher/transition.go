package launcher

// Event is an event of an instance, which may change the state.
type Event string

// The events.
const (
	EventReady        Event = "ready"         // the engine answered healthy
	EventStartFailed  Event = "start_failed"  // no process could be made
	EventSleepAsked   Event = "sleep_asked"   // a client or a swap wants the instance to sleep
	EventSlept        Event = "slept"         // the engine says that it sleeps
	EventSleepRefused Event = "sleep_refused" // the engine stayed awake
	EventWakeAsked    Event = "wake_asked"    // a client or a swap wants the instance awake
	EventWoke         Event = "woke"          // the engine says that it is awake
	EventWakeRefused  Event = "wake_refused"  // the engine stayed asleep
	EventStopAsked    Event = "stop_asked"    // a client or a swap wants the instance ended
	EventExited       Event = "exited"        // the API server's process ended
	EventTimedOut     Event = "timed_out"     // no answer in time; what the engine does is unknown
	EventGone         Event = "gone"          // every process of the instance has ended, and its device memory is back
)

// Events lists every event.
var Events = []Event{
	EventReady, EventStartFailed, EventSleepAsked, EventSlept, EventSleepRefused, EventWakeAsked,
	EventWoke, EventWakeRefused, EventStopAsked, EventExited, EventTimedOut, EventGone,
}

// Effect is what the supervisor does because of a transition.
type Effect string

// The effects of transitions.
const (
	NoEffect   Effect = ""
	PutToSleep Effect = "put_to_sleep" // drain, then the engine's sleep sequence
	WakeUp     Effect = "wake_up"      // the engine's wake sequence
	StopTree   Effect = "stop_tree"    // SIGTERM, grace, SIGKILL of the tree, wait for the memory
	ClearTree  Effect = "clear_tree"   // SIGKILL of the processes that are left, wait for the memory
	ClosePort  Effect = "close_port"   // give the ports back
)

// Transition is one row of the table of states.
type Transition struct {
	From   State
	Event  Event
	To     State
	Effect Effect
}

// Transitions is the whole table: an event that has no row for a state is refused
// in that state. spec/states.md shows the same rows.
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

var rows = func() map[stateEvent]Transition {
	m := make(map[stateEvent]Transition, len(Transitions))
	for _, t := range Transitions {
		m[stateEvent{t.From, t.Event}] = t
	}
	return m
}()

// Next gives the row for an event in a state. An event that the state refuses
// is an error with code conflict.
func Next(from State, event Event) (Transition, error) {
	t, ok := rows[stateEvent{from, event}]
	if !ok {
		return Transition{}, Conflictf("%s is refused while the instance is %s", event, from)
	}
	return t, nil
}
