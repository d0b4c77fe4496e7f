package launcherapi

// ServiceName and ServiceVersion are the answer to GET /. The clients of the llm-d
// launcher know the API by this name.
const (
	ServiceName    = "Multi-Instance vLLM Management API"
	ServiceVersion = "2.0"
)

// Service is the answer to GET /.
type Service struct {
	Name      string            `json:"name"`
	Version   string            `json:"version" doc:"Version of the API."`
	Server    string            `json:"server" doc:"Name and version of the launcher."`
	Endpoints map[string]string `json:"endpoints" doc:"Method and path of each operation."`
}

// Health is the answer to GET /health.
type Health struct {
	Status string `json:"status" enum:"OK"`
	// StateDisk says that the disk of the state folder does not answer: the launcher answers,
	// and refuses to start, swap or put to sleep.
	StateDisk string `json:"state_disk,omitempty"`
}

// Ready is the answer to GET /readyz.
type Ready struct {
	Status string `json:"status" enum:"ready,closing"`
}

// Values of Ready.Status.
const (
	ReadyStatus   = "ready"   // it takes calls
	ClosingStatus = "closing" // it refuses new calls
)

// HeaderRefused is on the answers of an instance's public port by which the launcher itself refuses a request that
// another replica, or the same one later, may answer: why, as one word.
const HeaderRefused = "X-Hotseat-Refused"
