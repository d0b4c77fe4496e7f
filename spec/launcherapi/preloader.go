package launcherapi

import "time"

// Values of InstanceSpec.StartMethod and, but for auto, of Instance.StartedBy.
const (
	StartAuto = "auto" // fork, after a wait for a preloader that is loading; exec if none is possible
	StartExec = "exec"
	StartFork = "fork" // refused unless a fitting preloader is ready
)

// Preloader is a process that has imported an engine, and from which instances are
// forked.
type Preloader struct {
	Name          string    `json:"name"`
	State         string    `json:"state" enum:"loading,ready,waiting" doc:"loading: it imports the engine. ready: it can fork. waiting: it ended or refused to serve; the launcher starts it again after a pause."`
	Reason        string    `json:"reason,omitempty" doc:"Why it is not ready; while it loads again, why it ended before."`
	PID           int       `json:"pid,omitempty"`
	Interpreter   string    `json:"interpreter" doc:"The Python, with its flags, that runs it and its engines."`
	EngineVersion string    `json:"engine_version,omitempty"`
	Modules       int       `json:"modules,omitempty" doc:"How many Python modules it has imported."`
	LoadSeconds   float64   `json:"load_seconds,omitempty" doc:"How long the import took."`
	Variables     []string  `json:"variables,omitempty" doc:"Names of the load-time variables whose values differ from those of the first preloader."`
	Forks         int       `json:"forks" doc:"How many instances were forked from it."`
	MemoryBytes   uint64    `json:"memory_bytes,omitempty" doc:"Main memory (PSS) that it held when it became ready."`
	Since         time.Time `json:"since" doc:"When its process started."`
	LastUsedAt    time.Time `json:"last_used_at"`
}

// PreloaderList is the answer to a call that lists the preloaders.
type PreloaderList struct {
	Reason     string      `json:"reason,omitempty" doc:"Why there are no preloaders. Absent if there can be some."`
	Preloaders []Preloader `json:"preloaders"`
}
