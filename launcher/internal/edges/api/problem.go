package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	maxProblemDetails  = 20
	maxProblemLocation = 200
	maxProblemMessage  = 2000
	maxDetailMessages  = 3
)

// huma takes its settings from package variables. No other package of the launcher
// uses huma.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return newProblem(status, msg, errs)
	}
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
}

// problem is an answer that tells of an error.
type problem struct {
	launcherapi.Problem

	header http.Header
}

func (p *problem) Error() string           { return p.Detail }
func (p *problem) GetStatus() int          { return p.Status }
func (p *problem) GetHeaders() http.Header { return p.header }

// ContentType names the kind of document that the JSON is.
func (p *problem) ContentType(string) string { return launcherapi.ProblemContentType }

// newProblem is the answer to a request that is refused before a handler sees it.
func newProblem(status int, msg string, errs []error) *problem {
	p := &problem{Problem: launcherapi.Problem{
		Title: http.StatusText(status), Status: status, Detail: msg, Code: launcherapi.CodeOf(status),
	}}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(detailOf(a).Location, detailOf(b).Location) })
	var messages []string
	for n, err := range errs {
		if n == maxProblemDetails {
			p.Errors = append(p.Errors, launcherapi.ProblemDetail{Message: fmt.Sprintf("and %d more", len(errs)-n)})
			break
		}
		detail := detailOf(err)
		detail.Location = shorten(detail.Location, maxProblemLocation)
		p.Errors = append(p.Errors, detail)
		if n < maxDetailMessages {
			messages = append(messages, strings.TrimPrefix(detail.Location+": "+detail.Message, ": "))
		}
	}
	if messages != nil {
		p.Detail = strings.Join(messages, "; ")
	}
	return p
}

// detailOf says what huma found wrong and where, and leaves out the value.
func detailOf(err error) launcherapi.ProblemDetail {
	d, ok := errors.AsType[*huma.ErrorDetail](err)
	switch {
	case !ok:
		return launcherapi.ProblemDetail{Message: err.Error()}
	case d.Message == validation.MsgExpectedMatchExactlyOneSchema:
		return launcherapi.ProblemDetail{Message: noForm(d.Location), Location: d.Location}
	}
	if strings.HasPrefix(d.Message, huma.ErrUnknownContentType.Error()) {
		d.Message += "; send it with the header Content-Type: application/json"
	}
	return launcherapi.ProblemDetail{Message: d.Message, Location: d.Location}
}

// shorten cuts a text that may repeat what a client sent.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// problemOf is the answer for the error of a handler's call.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	code := launcher.CodeOf(err)
	if code == "" {
		code = launcherapi.CodeInternal
	}
	status := launcherapi.StatusOf(code)
	p := &problem{Problem: launcherapi.Problem{Title: http.StatusText(status), Status: status, Detail: shorten(err.Error(), maxProblemMessage), Code: code}}
	if e, ok := errors.AsType[*launcher.Error](err); ok {
		p.InstanceID, p.ExitCode, p.Cause, p.LastLogLines, p.Fit = e.InstanceID, e.ExitCode, e.FailureCause, e.LastLogLines, e.Fit
		if e.Location != "" {
			p.Errors = []launcherapi.ProblemDetail{{
				Message: shorten(e.Detail, maxProblemMessage), Location: shorten(e.Location, maxProblemLocation),
			}}
		}
	}
	if failed, ok := errors.AsType[*launcher.SwapError](err); ok {
		p.swap(failed)
	}
	return p
}

// swap adds the members of a swap that failed.
func (p *problem) swap(failed *launcher.SwapError) {
	r := failed.Result
	if r.Outcome == launcherapi.OutcomeUndone || r.Outcome == launcherapi.OutcomeUndoFailed {
		p.undone()
	}
	p.SwapID, p.Outcome, p.FailedPhase = r.SwapID, r.Outcome, failed.Phase
	p.In, p.Out, p.Evicted, p.Deleted, p.Cut, p.BeganAt, p.Phases, p.TotalMS = r.In, r.Out, r.Evicted, r.Deleted, r.Cut, r.BeganAt, r.Phases, r.TotalMS
}

// undone makes the status say whether the engine failed or time ran out: the
// failure of a swap is not the request's fault, whatever the code of the error
// behind it, which goes to cause.
func (p *problem) undone() {
	if p.Code != launcherapi.CodeEngineTimeout {
		if p.Cause == "" && p.Code != launcherapi.CodeEngineFailed && p.Code != launcherapi.CodeInternal {
			p.Cause = p.Code
		}
		p.Code = launcherapi.CodeEngineFailed
	}
	p.Status = launcherapi.StatusOf(p.Code)
	p.Title = http.StatusText(p.Status)
}

// with adds a header to the answer.
func (p *problem) with(name, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// write answers with the problem, outside of huma's handlers.
func (p *problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", launcherapi.ProblemContentType)
	w.WriteHeader(p.Status)
	if err := jsonFormat.Marshal(w, p); err != nil {
		panic(err) // nothing in it can fail to marshal
	}
}
