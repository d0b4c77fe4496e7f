package engine

// State is what the engine says about itself.
type State struct {
	Sleeping, Paused, Dead bool
	// MetricAwake and MetricLevel are what the sleep metric shows; a wake of
	// some tags shows awake although IsSleeping is still true.
	MetricAwake      bool
	MetricLevel      int
	Running, Waiting int
	Live             int
}

// State reads the state.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{
		Sleeping: e.sleeping || e.paused != unpaused, Paused: e.paused != unpaused, Dead: e.dead,
		MetricAwake: e.awake, MetricLevel: e.level, Running: e.running, Live: len(e.live),
	}
	s.Waiting = s.Live - s.Running
	return s
}
