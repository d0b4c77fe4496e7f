package launcherapi

import (
	"net/http"
	"time"
)

// ProblemContentType is the content type of an error.
const ProblemContentType = "application/problem+json"

// Codes that a Problem carries beside its HTTP status, so that a client need
// not read prose. The launcher's domain errors have the same codes.
const (
	CodeInvalid       = "invalid"         // 400, 422: the request itself is wrong
	CodeUnauthorized  = "unauthorized"    // 401
	CodeForbidden     = "forbidden"       // 403
	CodeNotFound      = "not_found"       // 404
	CodeExists        = "exists"          // 409: the id is taken
	CodeConflict      = "conflict"        // 409: the instance's state does not allow it
	CodePortTaken     = "port_taken"      // 409
	CodeDoesNotFit    = "does_not_fit"    // 409: memory or a budget; Fit holds the numbers
	CodeGone          = "gone"            // 410: the revision is too old
	CodeTooLarge      = "too_large"       // 413
	CodeRange         = "range"           // 416
	CodeKeyReused     = "key_reused"      // 422: the Idempotency-Key came with another body
	CodeTooMany       = "too_many"        // 429
	CodeInternal      = "internal"        // 500
	CodeNoAccess      = "no_access"       // 500: the launcher may not write, or read, in its state, log or model folder
	CodeEngineFailed  = "engine_failed"   // 502: the engine died or refused
	CodeSourceFailed  = "source_failed"   // 502: the source of a model did not send what it should
	CodeUnavailable   = "unavailable"     // 503: the launcher is going down
	CodeEngineTimeout = "engine_timeout"  // 504: the engine did not answer in time, or does not end
	CodeStorage       = "storage_trouble" // 507: the state, log or model folder cannot be written, or has no room
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

// StatusOf gives the HTTP status of a code. A code that is not listed above,
// the empty one for instance, is an internal error: 500.
func StatusOf(code string) int {
	if status, ok := statusOfCode[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// CodeOf gives a code for an HTTP status that came without one. Where several
// codes share a status it is the most general of them.
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
	Detail string `json:"detail" doc:"What is wrong, and what would be right."`
	Code   string `json:"code,omitempty"`

	Errors []ProblemDetail `json:"errors,omitempty" doc:"Each thing wrong with the body, with its place."`
	Fit    *Fit            `json:"fit,omitempty" doc:"With code does_not_fit: who holds what."`

	InstanceID   string   `json:"instance_id,omitempty"`
	ExitCode     *int     `json:"exit_code,omitempty"`
	Cause        string   `json:"cause,omitempty"`
	LastLogLines []string `json:"last_log_lines,omitempty"`

	// Of a swap: the members of SwapResult.
	SwapID      string      `json:"swap_id,omitempty"`
	Outcome     string      `json:"outcome,omitempty" enum:"refused,undone,undo_failed,interrupted" doc:"Of a swap. refused: nothing was touched. undone: whoever was awake is awake again. undo_failed: not so; detail and out say who is left how. interrupted: the launcher is closing, and finishes or undoes the swap when it is back."`
	FailedPhase string      `json:"failed_phase,omitempty" doc:"Of a swap that had begun."`
	In          *Instance   `json:"in,omitempty"`
	Out         []Instance  `json:"out,omitempty"`
	BeganAt     time.Time   `json:"began_at,omitzero"`
	Phases      []PhaseTime `json:"phases,omitempty"`
	Evicted     []string    `json:"evicted,omitempty"`
	Deleted     []string    `json:"deleted,omitempty"`
	Cut         int         `json:"cut_requests,omitempty"`
	TotalMS     float64     `json:"total_ms,omitempty"`
}

// ProblemDetail is one thing wrong with a request. It does not repeat the value,
// which may be a secret.
type ProblemDetail struct {
	Message  string `json:"message"`
	Location string `json:"location,omitempty" example:"body.gpu_uuids[0]"`
}

// BoundDeviceMemory is the bound of a refusal for want of device memory; the
// other bounds are the names of budgets.
const BoundDeviceMemory = "device_memory"

// Fit holds the numbers of a refusal for want of room.
type Fit struct {
	GPUUUID    string      `json:"gpu_uuid,omitempty" doc:"Absent when the bound is not a GPU's."`
	Bound      string      `json:"bound" doc:"What would be exceeded: device_memory or the name of a budget."`
	Needed     uint64      `json:"needed" doc:"Bytes, or a count for max_instances."`
	Available  uint64      `json:"available"`
	Limit      uint64      `json:"limit"`
	Holders    []GPUHolder `json:"holders,omitempty"`
	Foreign    uint64      `json:"foreign_bytes,omitempty"`
	ReservedBy string      `json:"reserved_by,omitempty" doc:"The swap that has promised the room to somebody."`
}
