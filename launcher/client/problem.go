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

// readProblem makes an error of an answer that tells no success.
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

// rangeError is the error for a range of which a log has nothing.
type rangeError struct {
	error
	total int64 // offset of the log's end
}

func (e *rangeError) Unwrap() error { return e.error }

// notALauncher describes an answer that no launcher gives, such as one of a model's port
// or of a proxy on the way.
func notALauncher(resp *http.Response, content []byte) string {
	const shown = 200 // bytes
	text := strings.TrimSpace(string(content))
	if len(text) > shown {
		text = strings.ToValidUTF8(text[:shown], "") + "…"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s answers %s, and not as a launcher does: %s", resp.Request.URL.Host, resp.Status, text), ": ")
}

// errorOf turns a problem document back into the launcher's error. A document
// without a code, of a proxy on the way, gets a code by its status.
func errorOf(p launcherapi.Problem) error {
	e := &launcher.Error{
		Code: p.Code, Detail: p.Detail, InstanceID: p.InstanceID, ExitCode: p.ExitCode,
		FailureCause: p.Cause, LastLogLines: p.LastLogLines, Fit: p.Fit,
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

// UndoneError says that a swap failed; the outcome in Result says whether it was
// undone, and the [launcher.Error] behind it why it failed.
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

// IsInvalid says whether the request itself is wrong.
func IsInvalid(err error) bool { return has(err, launcherapi.CodeInvalid, launcherapi.CodeKeyReused) }

// IsUnauthorized says whether the token is missing, or not the right one.
func IsUnauthorized(err error) bool { return has(err, launcherapi.CodeUnauthorized) }

// IsNotFound says whether there is no such instance.
func IsNotFound(err error) bool { return has(err, launcherapi.CodeNotFound) }

// IsExists says whether the id is taken.
func IsExists(err error) bool { return has(err, launcherapi.CodeExists) }

// IsConflict says whether the instance's state does not allow the call.
func IsConflict(err error) bool { return has(err, launcherapi.CodeConflict) }

// IsPortTaken says whether the port is taken.
func IsPortTaken(err error) bool { return has(err, launcherapi.CodePortTaken) }

// DoesNotFit says whether there is no room; the error's Fit has the numbers.
func DoesNotFit(err error) bool { return has(err, launcherapi.CodeDoesNotFit) }

// IsGone says whether a revision is too old to watch from.
func IsGone(err error) bool { return has(err, launcherapi.CodeGone) }

// IsEngineFailed says whether the engine died or refused.
func IsEngineFailed(err error) bool { return has(err, launcherapi.CodeEngineFailed) }

// IsEngineTimeout says whether the engine did not answer in time.
func IsEngineTimeout(err error) bool { return has(err, launcherapi.CodeEngineTimeout) }

// IsUnavailable says whether the launcher is going down, or not ready yet.
func IsUnavailable(err error) bool { return has(err, launcherapi.CodeUnavailable) }
