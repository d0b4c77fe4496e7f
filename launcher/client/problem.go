package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// maxProblemBytes bounds the body of an error.
const maxProblemBytes = 1 << 20

// readProblem returns the error of an answer that is not a success.
func readProblem(resp *http.Response) error {
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	if err != nil {
		return fmt.Errorf("cannot read the launcher's answer with status %d: %w", resp.StatusCode, err)
	}
	var p launcherapi.Problem
	if json.Unmarshal(content, &p) != nil || p.Detail == "" {
		p = launcherapi.Problem{Detail: notALauncher(resp, content)}
	}
	p.Status = resp.StatusCode
	if p.Status == http.StatusRequestedRangeNotSatisfiable {
		total, _ := parseLength(resp.Header.Get("Content-Range")) // without it, 0
		return &rangeError{error: errorOf(p), total: total}
	}
	return errorOf(p)
}

// rangeError is the error for a range of which the log has no byte.
type rangeError struct {
	error
	total int64 // offset of the log's end
}

func (e *rangeError) Unwrap() error { return e.error }

// notALauncher describes an answer that does not come from a launcher, but for example from a
// model's port or from a proxy.
func notALauncher(resp *http.Response, content []byte) string {
	const shown = 200 // bytes
	text := strings.TrimSpace(string(content))
	if len(text) > shown {
		text = strings.ToValidUTF8(text[:shown], "") + "…"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s answers %s, and not as a launcher does: %s", resp.Request.URL.Host, resp.Status, text), ": ")
}

// errorOf converts a problem document to a [launcher.Error]. A document without a code, for
// example of a proxy, gets a code by its status.
func errorOf(p launcherapi.Problem) error {
	e := &launcher.Error{
		Code: p.Code, Detail: p.Detail, InstanceID: p.InstanceID, ExitCode: p.ExitCode,
		FailureCause: p.Cause, LastLogLines: p.LastLogLines, Fit: p.Fit, SwapID: p.SwapID,
	}
	if e.Code == "" {
		e.Code = launcherapi.CodeOf(p.Status)
	}
	if len(p.Errors) > 0 {
		e.Location = p.Errors[0].Location
	}
	if p.Outcome == launcherapi.OutcomeUndone || p.Outcome == launcherapi.OutcomeUndoFailed {
		return &UndoneError{Phase: p.FailedPhase, Result: undone(p), Err: e}
	}
	return e
}

// UndoneError means that a swap failed. The outcome in Result says whether it was undone. The
// wrapped [launcher.Error] says why it failed.
type UndoneError struct {
	Phase  string // the phase that failed
	Result launcherapi.SwapResult
	Err    error
}

func (e *UndoneError) Error() string { return e.Err.Error() }

func (e *UndoneError) Unwrap() error { return e.Err }

func undone(p launcherapi.Problem) launcherapi.SwapResult {
	return launcherapi.SwapResult{
		SwapID: p.SwapID, Outcome: p.Outcome, In: p.In, Out: p.Out, Evicted: p.Evicted,
		Deleted: p.Deleted, Cut: p.Cut, BeganAt: p.BeganAt, Phases: p.Phases, TotalMS: p.TotalMS,
	}
}

func has(err error, codes ...string) bool {
	for _, code := range codes {
		if launcher.CodeOf(err) == code {
			return true
		}
	}
	return false
}

// IsInvalid reports whether the request is invalid.
func IsInvalid(err error) bool { return has(err, launcherapi.CodeInvalid, launcherapi.CodeKeyReused) }

// IsUnauthorized reports whether the token is missing or wrong.
func IsUnauthorized(err error) bool { return has(err, launcherapi.CodeUnauthorized) }

// IsNotFound reports whether the instance, model or swap does not exist.
func IsNotFound(err error) bool { return has(err, launcherapi.CodeNotFound) }

// IsExists reports whether the id is taken.
func IsExists(err error) bool { return has(err, launcherapi.CodeExists) }

// IsConflict reports whether the state of the instance does not allow the call.
func IsConflict(err error) bool { return has(err, launcherapi.CodeConflict) }

// IsPortTaken reports whether the port is taken.
func IsPortTaken(err error) bool { return has(err, launcherapi.CodePortTaken) }

// DoesNotFit reports whether there is too little memory, or a budget is exceeded. Fit of the
// error has the numbers.
func DoesNotFit(err error) bool { return has(err, launcherapi.CodeDoesNotFit) }

// IsGone reports whether a revision is too old to watch from.
func IsGone(err error) bool { return has(err, launcherapi.CodeGone) }

// IsEngineFailed reports whether the engine died or refused the call.
func IsEngineFailed(err error) bool { return has(err, launcherapi.CodeEngineFailed) }

// IsEngineTimeout reports whether the engine did not answer in time.
func IsEngineTimeout(err error) bool { return has(err, launcherapi.CodeEngineTimeout) }

// IsUnavailable reports whether the launcher is closing or not ready yet.
func IsUnavailable(err error) bool { return has(err, launcherapi.CodeUnavailable) }
