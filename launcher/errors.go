package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Error is an error of the launcher's domain. Its code decides the HTTP
// status; Detail says what is wrong and what would be right.
type Error struct {
	Code   string // one of launcherapi.Code…
	Detail string
	Cause  error // the error behind this one; may be nil

	// Facts that go to the client beside the detail. Most errors have none.
	InstanceID   string
	ExitCode     *int
	FailureCause string
	LastLogLines []string
	Fit          *launcherapi.Fit
	Location     string // field of the body that is wrong
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf gives the code of the first Error in err's chain, and "" when there is
// none.
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

// Invalidf says that the request itself is wrong; location names the field.
func Invalidf(location, format string, args ...any) *Error {
	e := newf(launcherapi.CodeInvalid, format, args...)
	e.Location = location
	return e
}

// Conflictf says that the instance's state does not allow the call.
func Conflictf(format string, args ...any) *Error {
	return newf(launcherapi.CodeConflict, format, args...)
}

// Existsf says that an id is taken.
func Existsf(format string, args ...any) *Error {
	return newf(launcherapi.CodeExists, format, args...)
}

// PortTakenf says that a port is taken.
func PortTakenf(format string, args ...any) *Error {
	return newf(launcherapi.CodePortTaken, format, args...)
}

// DoesNotFit says that there is no room, and holds the numbers.
func DoesNotFit(fit launcherapi.Fit, format string, args ...any) *Error {
	e := newf(launcherapi.CodeDoesNotFit, format, args...)
	e.Fit = &fit
	return e
}

// NotFound says that no instance has that id.
func NotFound(id string) *Error {
	e := newf(launcherapi.CodeNotFound, "Instance %s not found", id)
	e.InstanceID = id
	return e
}

// Gonef says that a revision is too old to resume from.
func Gonef(format string, args ...any) *Error { return newf(launcherapi.CodeGone, format, args...) }

// EngineFailedf says that the engine died or refused.
func EngineFailedf(format string, args ...any) *Error {
	return newf(launcherapi.CodeEngineFailed, format, args...)
}

// EngineTimeoutf says that the engine did not answer in time.
func EngineTimeoutf(format string, args ...any) *Error {
	return newf(launcherapi.CodeEngineTimeout, format, args...)
}

// Unavailablef says that the launcher is going down.
func Unavailablef(format string, args ...any) *Error {
	return newf(launcherapi.CodeUnavailable, format, args...)
}

// Storagef says that the state, log or model folder cannot be written, or has no room. Of
// an error by which the launcher may not, the code says that: more room does not help.
func Storagef(format string, args ...any) *Error {
	e := newf(launcherapi.CodeStorage, format, args...)
	if errors.Is(e.Cause, fs.ErrPermission) || errors.Is(e.Cause, syscall.EROFS) {
		e.Code = launcherapi.CodeNoAccess
	}
	return e
}
