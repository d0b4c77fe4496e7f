package launcherapi

import "time"

// Values of InstanceSpec.StartMethod and, but for auto, of Instance.StartedBy.
const (
	StartAuto = "auto" // fork, waiting for a preloader that loads; exec where there can be none
	StartExec = "exec"
	StartFork = "fork" // refused while no preloader that fits is ready
)

// Preloader is a process that has an engine loaded, from which instances are
// forked.
type Preloader struct {
	Name          string    `json:"name"`
	State         string    `json:"state" enum:"loading,ready,waiting" doc:"loading: it imports; ready: it forks; waiting: it ended or refuses to serve, and is started again after a while."`
	Reason        string    `json:"reason,omitempty" doc:"Why it is not ready, or while it loads again why it ended before, in words."`
	PID           int       `json:"pid,omitempty"`
	Interpreter   string    `json:"interpreter" doc:"The Python that it and its engines run in, with flags."`
	EngineVersion string    `json:"engine_version,omitempty"`
	Modules       int       `json:"modules,omitempty" doc:"Python modules that it has imported."`
	LoadSeconds   float64   `json:"load_seconds,omitempty" doc:"How long that took."`
	Variables     []string  `json:"variables,omitempty" doc:"Names of the load-time variables in which it differs from the first one."`
	Forks         int       `json:"forks" doc:"Instances forked from it."`
	MemoryBytes   uint64    `json:"memory_bytes,omitempty" doc:"Main memory that it held when it became ready (PSS)."`
	Since         time.Time `json:"since" doc:"When its process was started."`
	LastUsedAt    time.Time `json:"last_used_at"`
}

// PreloaderList is the answer to a call that lists the preloaders.
type PreloaderList struct {
	Reason     string      `json:"reason,omitempty" doc:"Why there will be none, if so."`
	Preloaders []Preloader `json:"preloaders"`
}
