package launcherapi

// ServiceName and ServiceVersion are what GET / answers. The name is that of
// the API that the llm-d launcher's clients know.
const (
	ServiceName    = "Multi-Instance vLLM Management API"
	ServiceVersion = "2.0"
)

// Service is the answer to GET /.
type Service struct {
	Name      string            `json:"name"`
	Version   string            `json:"version" doc:"Version of the API."`
	Server    string            `json:"server" doc:"Name and version of the program."`
	Endpoints map[string]string `json:"endpoints" doc:"Each operation with its method and path."`
}

// Health is the answer to GET /health.
type Health struct {
	Status string `json:"status" enum:"OK"`
}

// Ready is the answer to GET /readyz.
type Ready struct {
	Status string `json:"status" enum:"ready,closing"`
}

// Values of Ready.Status.
const (
	ReadyStatus   = "ready"   // it takes calls
	ClosingStatus = "closing" // it takes no new ones
)
