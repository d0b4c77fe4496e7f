package decide

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// States in the status of a requester.
const (
	StateWaiting = "Waiting"
	StateServing = "Serving"
)

// outdated is told of a requester that serves something else than it asks for.
const outdated = "its specification has changed since it was bound, and it serves the earlier one: delete it, or restart its Deployment, to get the new one"

// maxErrors is how many problems of an input a status lists.
const maxErrors = 16

// StatusText returns a status as it is written, after the one that was there.
func StatusText(o *Observation, old, s podmeta.Status) (string, error) {
	s.Since = o.Now.UTC().Truncate(time.Second)
	if old.State == s.State {
		s.Since = old.Since
	}
	for _, problem := range o.Problems[:min(len(o.Problems), maxErrors)] {
		s.Errors = append(s.Errors, dualpods.Truncate(problem.String(), MaxNote))
	}
	if o.Requester.Seat {
		s.Seat, s.GPUs = o.Requester.Assigned, slices.Sorted(slices.Values(o.GPUs()))
		if l := o.launched(); l != nil {
			s.Launcher = l.launcherName()
		}
	}
	s.LeftAlone, s.Ignored = o.Form.LeftAlone, o.Form.Ignored
	text, err := json.Marshal(s)
	return string(text), err
}

// Follows reports whether the requester has the labels of its input. A requester that serves
// something else than it asks for keeps the labels that it has.
func (b *Bound) Follows() bool { return len(b.Problems) == 0 && b.specUnchanged() }

// GateSuffices reports whether a status of a requester that is served would only repeat what its
// readiness gate says. That of a seat says also which model it has.
func (c *Common) GateSuffices(s podmeta.Status) bool {
	return c.Requester.Gate && !c.Requester.Seat && s.Message == "" && len(c.Problems)+len(c.Form.LeftAlone)+len(c.Form.Ignored) == 0
}

// ServingStatus returns the status of a requester that is served, after the one that was there.
func (b *Bound) ServingStatus(old podmeta.Status) podmeta.Status {
	s := podmeta.Status{State: StateServing, Launcher: b.Launcher.Name, Instance: b.Record.Instance}
	if b.Instance != nil {
		s.ModelFrom, s.ModelWhy = b.Instance.ModelFrom, dualpods.Truncate(b.Instance.ModelWhy, MaxNote)
	}
	if b.Follows() {
		s.Generation = b.Form.Generation
		return s
	}
	s.Generation = cmp.Or(old.Generation, b.Record.Generation)
	if len(b.Problems) == 0 {
		s.Message = outdated
	}
	return s
}
