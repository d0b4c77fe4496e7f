package launcherapi

import (
	"net/http"
	"time"
)

// ProblemContentType is the content type of an error.
const ProblemContentType = "application/problem+json"

// Codes of a Problem. A client reads the code, not the prose. The launcher's domain
// errors have the same codes.
const (
	CodeInvalid       = "invalid"         // 400, 422: the request itself is wrong
	CodeUnauthorized  = "unauthorized"    // 401: the token is missing or wrong
	CodeForbidden     = "forbidden"       // 403
	CodeNotFound      = "not_found"       // 404: no instance, model or swap has that id
	CodeExists        = "exists"          // 409: the id is taken
	CodeConflict      = "conflict"        // 409: the instance's state does not allow it
	CodePortTaken     = "port_taken"      // 409: another process or instance has the port
	CodeDoesNotFit    = "does_not_fit"    // 409: device memory or a budget is exceeded; Fit holds the numbers
	CodeGone          = "gone"            // 410: the event log no longer holds that revision
	CodeTooLarge      = "too_large"       // 413: the body is too large
	CodeRange         = "range"           // 416: the log is shorter than the range that was asked for
	CodeKeyReused     = "key_reused"      // 422: the Idempotency-Key was used before with another body
	CodeTooMany       = "too_many"        // 429: too many watches, followed logs and followed swaps are open
	CodeInternal      = "internal"        // 500: an error of the launcher itself
	CodeNoAccess      = "no_access"       // 500: the launcher lacks the right to read or write its state, log or model folder
	CodeEngineFailed  = "engine_failed"   // 502: the engine ended or refused the call
	CodeSourceFailed  = "source_failed"   // 502: the source of a model failed or sent something unexpected
	CodeUnavailable   = "unavailable"     // 503: the launcher is closing
	CodeEngineTimeout = "engine_timeout"  // 504: the engine did not answer or did not end in time
	CodeStorage       = "storage_trouble" // 507: the state, log or model folder has no room or cannot be written
)

var statusOfCode = map[string]int{
	CodeInvalid:       http.StatusUnprocessableEntity,
	CodeUnauthorized:  http.StatusUnauthorized,
	CodeForbidden:     http.StatusForbidden,
	CodeNotFound:      http.StatusNotFound,
	CodeExists:        http.StatusConflict,
	CodeConflict:      http.StatusConflict,
	CodePortTaken:     http.StatusConflict,
	CodeDoesNotFit:    http.StatusConflict,
	CodeGone:          http.StatusGone,
	CodeTooLarge:      http.StatusRequestEntityTooLarge,
	CodeRange:         http.StatusRequestedRangeNotSatisfiable,
	CodeKeyReused:     http.StatusUnprocessableEntity,
	CodeTooMany:       http.StatusTooManyRequests,
	CodeInternal:      http.StatusInternalServerError,
	CodeNoAccess:      http.StatusInternalServerError,
	CodeEngineFailed:  http.StatusBadGateway,
	CodeSourceFailed:  http.StatusBadGateway,
	CodeUnavailable:   http.StatusServiceUnavailable,
	CodeEngineTimeout: http.StatusGatewayTimeout,
	CodeStorage:       http.StatusInsufficientStorage,
}

// StatusOf returns the HTTP status of a code. It is 500 for a code that is not listed
// above, and for the empty one.
func StatusOf(code string) int {
	if status, ok := statusOfCode[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// CodeOf returns the code for an HTTP status that came without one: the most general
// code of those that share the status.
func CodeOf(status int) string {
	switch status {
	case http.StatusConflict:
		return CodeConflict
	case http.StatusUnprocessableEntity:
		return CodeInvalid
	case http.StatusInternalServerError:
		return CodeInternal
	case http.StatusBadGateway:
		return CodeEngineFailed
	}
	for code, s := range statusOfCode {
		if s == status {
			return code
		}
	}
	if status >= 400 && status < 500 {
		return CodeInvalid
	}
	return CodeInternal
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title,omitempty"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"What went wrong, and what to do."`
	Code   string `json:"code,omitempty"`

	Errors []ProblemDetail `json:"errors,omitempty" doc:"Each mistake in the body, and where it is."`
	Fit    *Fit            `json:"fit,omitempty" doc:"With code does_not_fit: the numbers, and which instances hold the room."`

	InstanceID   string   `json:"instance_id,omitempty"`
	ExitCode     *int     `json:"exit_code,omitempty"`
	Cause        string   `json:"cause,omitempty"`
	LastLogLines []string `json:"last_log_lines,omitempty"`

	// The members of SwapResult, when the problem is that of a swap.
	SwapID      string      `json:"swap_id,omitempty"`
	Outcome     string      `json:"outcome,omitempty" enum:"refused,undone,undo_failed,interrupted" doc:"Outcome of a swap. refused: the swap changed nothing. undone: the instances that were awake are awake again. undo_failed: some of them are not; detail and out tell their states. interrupted: the launcher is closing, and finishes or undoes the swap after its restart."`
	FailedPhase string      `json:"failed_phase,omitempty" doc:"The phase in which the swap failed; absent if it had not begun."`
	In          *Instance   `json:"in,omitempty"`
	Out         []Instance  `json:"out,omitempty"`
	BeganAt     time.Time   `json:"began_at,omitzero"`
	Phases      []PhaseTime `json:"phases,omitempty"`
	Evicted     []string    `json:"evicted,omitempty"`
	Deleted     []string    `json:"deleted,omitempty"`
	Cut         int         `json:"cut_requests,omitempty"`
	TotalMS     float64     `json:"total_ms,omitempty"`
}

// ProblemDetail is one mistake in a request. It does not repeat the value, which may be
// a secret.
type ProblemDetail struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" example:"body.gpu_uuids[0]"`
}

// BoundDeviceMemory is the bound that a request exceeds when device memory is short. The
// other bounds are the names of budgets.
const BoundDeviceMemory = "device_memory"

// Fit holds the numbers of a request that was refused because it does not fit.
type Fit struct {
	GPUUUID    string      `json:"gpu_uuid,omitempty" doc:"The GPU that is short. Absent when the bound is not that of a GPU."`
	Bound      string      `json:"bound" doc:"The bound that the request exceeds: device_memory or the name of a budget."`
	Needed     uint64      `json:"needed" doc:"Bytes, or a count for max_instances."`
	Available  uint64      `json:"available"`
	Limit      uint64      `json:"limit"`
	Holders    []GPUHolder `json:"holders,omitempty"`
	Foreign    uint64      `json:"foreign_bytes,omitempty"`
	ReservedBy string      `json:"reserved_by,omitempty" doc:"The swap that has reserved the room."`
}
