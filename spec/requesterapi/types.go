package requesterapi

import (
	"net"
	"strconv"
	"time"
)

// Paths of the SPI.
const (
	PathAccelerators           = "/v1/dual-pods/accelerators"
	PathAcceleratorMemoryUsage = "/v1/dual-pods/accelerator-memory-usage"
	PathBecomeReady            = "/v1/become-ready"
	PathBecomeUnready          = "/v1/become-unready"
	PathReady                  = "/ready"
	PathSetLog                 = "/v1/set-log"
	PathProxyConfig            = "/v1/proxy/config"
	PathProxyHold              = "/v1/proxy/hold"
)

// Query parameters.
const (
	// ParamBinding names the binding that the caller means. A requester that is
	// bound to another one refuses with CodeOtherBinding and does nothing.
	ParamBinding = "binding"
	// ParamStartPos is the place of a chunk's first byte in the log, from 0.
	ParamStartPos = "startPos"
	// ParamLog names the log of a chunk: at most MaxBinding printable ASCII
	// characters, opaque to the requester.
	ParamLog = "log"
	// ParamDrainTimeout and ParamIdleTimeout are durations as Go writes them
	// ("10s", "500ms"), from 0 to MaxDrain.
	ParamDrainTimeout = "drain_timeout"
	ParamIdleTimeout  = "idle_timeout"
	// ParamWait is how long an unready requester may hold GET /ready: a duration
	// from 0 to MaxWait.
	ParamWait = "wait"
)

// Bounds and defaults.
const (
	DefaultProbesPort   = 8080
	DefaultSPIPort      = 8081
	DefaultServingPort  = 8082 // where a PUT names none
	DefaultDrainTimeout = 10 * time.Second
	DefaultIdleTimeout  = 2 * time.Second
	MaxDrain            = time.Hour
	MaxWait             = time.Minute
	// MaxLogChunk is how many bytes of log one call may bring.
	MaxLogChunk = 1 << 20
	// MaxConfig is how many bytes a ProxyConfig may have.
	MaxConfig = 64 << 10
	// MaxBinding is how many bytes the name of a binding may have.
	MaxBinding = 512
	// MaxHeld is how many connections are held at once, and MaxHold for how long each.
	MaxHeld = 64
	MaxHold = 10 * time.Second
)

// InstanceHeader is the header of every answer of the SPI that holds
// Proxy.Instance.
const InstanceHeader = "Hotseat-Requester-Instance"

// MemoryUsage is the device memory in use of each of the requester's
// accelerators, by UUID, in MiB, rounded up. The llm-d community's pkg/spi says
// bytes, but its requester answers what nvidia-smi calls memory.used, in MiB, and
// its controller compares that with a limit in MiB.
type MemoryUsage map[string]int64

// ProxyConfig binds a requester: it forwards connections of its serving port to the
// target. Two ProxyConfigs are the same binding if all their fields are equal.
type ProxyConfig struct {
	// Binding is the controller's name for the binding, opaque to the requester:
	// at most MaxBinding printable ASCII characters. Empty means the target.
	Binding string `json:"binding,omitempty"`
	// ServingPort is the port of the requester's Pod that clients use. 0 means
	// DefaultServingPort.
	ServingPort uint16 `json:"serving_port,omitempty"`
	// Address and Port are the target: an IP address or a DNS name, and a port.
	Address string `json:"address"`
	Port    uint16 `json:"port"`
	// NoTraffic binds a requester to an engine that takes no requests, such as a worker of a
	// server over several launchers: the requester does not listen on its serving port. Address,
	// Port and MetricsURL must be empty then, and Binding must not.
	NoTraffic bool `json:"no_traffic,omitempty"`
	// MetricsURL is the engine's own /metrics (http), answered as part of the
	// requester's. Empty: none.
	MetricsURL string `json:"metrics_url,omitempty"`
}

// Target is the target as "host:port".
func (c ProxyConfig) Target() string {
	return net.JoinHostPort(c.Address, strconv.Itoa(int(c.Port)))
}

// Hold asks a requester that is unbound to accept connections at its serving port, and to hold
// them until PUT of a ProxyConfig with the same Binding and ServingPort.
type Hold struct {
	// Binding is the name of the binding that is to come. It must not be empty.
	Binding string `json:"binding"`
	// ServingPort is as in ProxyConfig.
	ServingPort uint16 `json:"serving_port,omitempty"`
}

// States of a Proxy.
const (
	StateUnbound  = "unbound"
	StateBound    = "bound"
	StateDraining = "draining" // DELETE came, connections are ending
)

// Proxy is the state of the requester. The fields of ProxyConfig are empty while it is
// unbound.
type Proxy struct {
	ProxyConfig
	// Instance names the process of the requester: another one after a restart.
	Instance string `json:"instance"`
	State    string `json:"state"`
	Ready    bool   `json:"ready"`
	// Terminating says that the requester was told to end.
	Terminating bool `json:"terminating,omitempty"`
	// ShutdownDelayMS is for how many milliseconds more a terminating requester is to
	// serve as before, because clients may not have heard yet that it ends. It is 0 once
	// that time is over, and if the requester was not ready when it was told to end.
	ShutdownDelayMS int64 `json:"shutdown_delay_ms,omitempty"`
	// Connections are those open now that the binding has.
	Connections int `json:"connections"`
	// CanHold says that the program knows PUT of a Hold. Those of earlier releases do not.
	CanHold bool `json:"can_hold,omitempty"`
	// Holding is the Binding of the Hold; empty: the requester holds no connections.
	Holding string `json:"holding,omitempty"`
	// Held are the connections that are held now.
	Held int `json:"held,omitempty"`
	// Log is the log that set-log brought last.
	Log Log `json:"log,omitzero"`
}

// Log is how far a log is.
type Log struct {
	// Name is what the log was called, or else the binding.
	Name string `json:"name"`
	// NextPos is the startPos of the byte that was not received yet.
	NextPos int64 `json:"next_pos"`
}

// Unbound is the outcome of DELETE: how the connections ended that were open when it
// came. All counts are 0 if the requester was unbound.
type Unbound struct {
	// Finished ended by themselves; Idle were closed between two requests; Cut
	// were reset because drain_timeout was over.
	Finished int `json:"finished"`
	Idle     int `json:"idle"`
	Cut      int `json:"cut"`
}

// LogPosition answers set-log.
type LogPosition struct {
	// NextPos is the startPos of the byte that was not received yet.
	NextPos int64 `json:"next_pos"`
	// Written is how many bytes of the chunk were new, and were written.
	Written int `json:"written"`
}

// ProblemContentType is the content type of an error.
const ProblemContentType = "application/problem+json"

// Codes of a Problem.
const (
	CodeInvalid        = "invalid"         // 400: the request itself is wrong
	CodeForbidden      = "forbidden"       // 403: the client has no certificate of the controller's authorities
	CodeLogGap         = "log_gap"         // 400: the chunk begins beyond NextPos
	CodeUnbound        = "unbound"         // 409: the requester is unbound
	CodeOtherBinding   = "other_binding"   // 409: Problem.Binding is bound
	CodeDraining       = "draining"        // 409: Problem.Binding is being unbound
	CodeTerminating    = "terminating"     // 409: the requester was told to end
	CodePortTaken      = "port_taken"      // 409: the serving port is in use in the Pod
	CodeTooLarge       = "too_large"       // 413
	CodeNoAccelerators = "no_accelerators" // 500: the requester cannot find out the Pod's GPUs
	CodeInternal       = "internal"        // 500
	CodeNotSupported   = "not_supported"   // 501: the requester has no means to find it out
)

// Problem is an RFC 9457 problem document.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what is wrong and what would be right.
	Detail string `json:"detail"`
	Code   string `json:"code"`
	// Binding is the present binding, with CodeOtherBinding and CodeDraining.
	Binding string `json:"binding,omitempty"`
	// NextPos is the log's, with CodeLogGap.
	NextPos *int64 `json:"next_pos,omitempty"`
}
