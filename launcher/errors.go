package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Error is an error of the launcher's domain. Code decides the HTTP status. Detail
// says what is wrong and what would be right.
type Error struct {
	Code   string // one of launcherapi.Code…
	Detail string
	Cause  error // the wrapped error; may be nil

	// Facts for the client beside Detail. Most errors have none.
	InstanceID   string
	ExitCode     *int
	FailureCause string
	LastLogLines []string
	Fit          *launcherapi.Fit
	SwapID       string // the swap that was asked for and has changed nothing
	Location     string // the invalid field of the request's body
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of the first Error in err's chain, or "" if there is none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

func newf(code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Detail: err.Error(), Cause: errors.Unwrap(err)}
}

// Invalidf reports an invalid request; location names the field.
func Invalidf(location, format string, args ...any) *Error {
	e := newf(launcherapi.CodeInvalid, format, args...)
	e.Location = location
	return e
}

// Conflictf reports that the instance's state does not allow the call.
func Conflictf(format string, args ...any) *Error {
	return newf(launcherapi.CodeConflict, format, args...)
}

// Existsf reports that an id is taken.
func Existsf(format string, args ...any) *Error {
	return newf(launcherapi.CodeExists, format, args...)
}

// PortTakenf reports that a port is taken.
func PortTakenf(format string, args ...any) *Error {
	return newf(launcherapi.CodePortTaken, format, args...)
}

// DoesNotFit reports a lack of room; fit holds the numbers.
func DoesNotFit(fit launcherapi.Fit, format string, args ...any) *Error {
	e := newf(launcherapi.CodeDoesNotFit, format, args...)
	e.Fit = &fit
	return e
}

// NotFound reports that no instance has that id.
func NotFound(id string) *Error {
	e := newf(launcherapi.CodeNotFound, "Instance %s not found", id)
	e.InstanceID = id
	return e
}

// Gonef reports that a revision is too old to resume from.
func Gonef(format string, args ...any) *Error { return newf(launcherapi.CodeGone, format, args...) }

// EngineFailedf reports that the engine died or refused.
func EngineFailedf(format string, args ...any) *Error {
	return newf(launcherapi.CodeEngineFailed, format, args...)
}

// EngineTimeoutf reports that the engine did not answer in time.
func EngineTimeoutf(format string, args ...any) *Error {
	return newf(launcherapi.CodeEngineTimeout, format, args...)
}

// Unavailablef reports that the launcher is shutting down.
func Unavailablef(format string, args ...any) *Error {
	return newf(launcherapi.CodeUnavailable, format, args...)
}

// Storagef reports that the state, log or model folder cannot be written or has no
// room. If the cause is a missing permission, the code is CodeNoAccess: more room
// would not help.
func Storagef(format string, args ...any) *Error {
	e := newf(launcherapi.CodeStorage, format, args...)
	if errors.Is(e.Cause, fs.ErrPermission) || errors.Is(e.Cause, syscall.EROFS) {
		e.Code = launcherapi.CodeNoAccess
	}
	return e
}
