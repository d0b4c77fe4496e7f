package decide

// Tables are the tables of spec/binding.md.
var Tables = []Table{&leaving, &unbinding, &resting, &stranded, &preparing, &reaching, &recording, &changing, &asking, &swapping, &serving}

// Decide returns the step for one requester, and why. It is a pure function.
func Decide(o Observation) Step { return By(&o, Tables) }

// By decides by the given tables.
func By(o *Observation, tables []Table) Step {
	s := see(o)
	for _, t := range tables {
		if step, ok := t.step(s); ok {
			return s.finish(o, step)
		}
	}
	return Step{Do: Nothing, Why: "served", After: o.untilFoundReady()}
}

// seen has what the tables read of one requester, in the order of the tables. A requester goes
// through the tables whose value is not nil, through each once at most, until a row holds.
type seen struct {
	leaving   *Ending
	unbinding *Ending
	resting   *Bound
	staying   *Staying // stranded, preparing and reaching
	recording *Recording
	changing  *Changing
	asking    *Asking
	swapping  *Swapping
	serving   *Awake
}

// see chooses the tables of a requester. Nothing else does.
func see(o *Observation) *seen {
	b := o.Bound()
	switch {
	case o.IsLeaving():
		return &seen{leaving: o.ending(b), resting: b}
	case b == nil:
		return &seen{staying: o.staying(b), recording: o.recording()}
	case b.recordChanged():
		return &seen{unbinding: o.ending(b), resting: b}
	case b.isChanging():
		return &seen{staying: o.staying(b), changing: o.changing(b)}
	case b.isToRestart() || b.isInItsSwap():
		return &seen{staying: o.staying(b), swapping: o.swapping(b)}
	case b.instanceAwake() && !b.isInUnheardSwap():
		return &seen{staying: o.staying(b), serving: b.awake()}
	default:
		return &seen{staying: o.staying(b), asking: o.asking(b)}
	}
}
