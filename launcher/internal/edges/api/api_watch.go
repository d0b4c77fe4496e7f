package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// MinHeartbeat is the shortest time between heartbeats that a client may ask for.
const MinHeartbeat = 100 * time.Millisecond

type watchInput struct {
	Since       string `query:"since" pattern:"^[0-9]{1,19}$" doc:"Only the events after this revision, which an earlier answer has. The answer is 410 if the launcher no longer keeps the events after it (watch_buffer), or if it has not been reached. Without it the stream begins with a CREATED for each instance that there is." example:"42"`
	Heartbeat   string `query:"heartbeat" doc:"Send a HEARTBEAT whenever nothing else was sent for this long: a string such as 10s, or a number of seconds. At least 100ms, or it is refused; absent or 0: none is sent." example:"10s"`
	Accept      string `header:"Accept" hidden:"true"`
	LastEventID string `header:"Last-Event-ID" pattern:"^[0-9]{1,19}$" doc:"For server-sent events: the revision to resume from, if since is absent."`
}

func (s *Server) watch(_ context.Context, in *watchInput) (*streamOutput, error) {
	heartbeat, err := heartbeatOf(in.Heartbeat)
	if err != nil {
		return nil, err
	}
	initial, since, err := s.watchFrom(in)
	if err != nil {
		return nil, err
	}
	return s.events(in.Accept, func(ctx context.Context, out *eventStream) {
		w := watcher{events: s.opts.Events, out: out, heartbeat: heartbeat, since: since}
		w.run(ctx, initial)
	}), nil
}

// watchFrom gives the instances that a stream begins with, and the revision that it
// goes on from.
func (s *Server) watchFrom(in *watchInput) (initial []launcherapi.Instance, since uint64, err error) {
	from := in.Since
	if from == "" {
		from = in.LastEventID
	}
	if from == "" {
		initial, since = s.opts.Instances.List()
		return initial, since, nil
	}
	since, err = strconv.ParseUint(from, 10, 64)
	if err != nil {
		return nil, 0, launcher.Invalidf("query.since", "since %q is no revision; take the number from an earlier answer", from)
	}
	return nil, since, s.opts.Events.Check(since)
}

func heartbeatOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := launcherapi.ParseDuration(text)
	if err != nil {
		return 0, launcher.Invalidf("query.heartbeat", "%w", err)
	}
	if d > 0 && d.D() < MinHeartbeat {
		return 0, launcher.Invalidf("query.heartbeat", "heartbeat %s is too short; it must be at least %s", text, MinHeartbeat)
	}
	return d.D(), nil
}

// watcher is one reader of the events.
type watcher struct {
	events    Events
	out       *eventStream
	heartbeat time.Duration // 0: none
	since     uint64
}

// event is a launcherapi.WatchEvent of any object.
type event struct {
	Type   launcherapi.EventType `json:"type"`
	Object any                   `json:"object"`
}

// run writes events until the reader leaves, falls behind, or the server shuts
// down; the last two end with an ERROR event.
func (w *watcher) run(ctx context.Context, initial []launcherapi.Instance) {
	for _, i := range initial {
		if w.send(launcherapi.EventCreated, i.Revision, i) != nil {
			return
		}
	}
	for {
		batch, err := w.next(ctx)
		switch {
		case errors.Is(err, errIdle):
			if w.send(launcherapi.EventHeartbeat, 0, launcherapi.Heartbeat{Revision: w.since}) != nil {
				return
			}
		case launcher.CodeOf(err) != "":
			_ = w.send(launcherapi.EventError, 0, problemOf(err).Problem) // the stream ends either way
			return
		case err != nil:
			return // the reader has left
		}
		for _, e := range batch {
			if w.send(e.Type, e.Object.Revision, e.Object) != nil {
				return
			}
			w.since = e.Object.Revision
		}
	}
}

var errIdle = errors.New("no event")

func (w *watcher) next(ctx context.Context) ([]launcherapi.WatchEvent, error) {
	if w.heartbeat > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.heartbeat, errIdle)
		defer cancel()
	}
	return w.events.Next(ctx, w.since)
}

func (w *watcher) send(kind launcherapi.EventType, revision uint64, object any) error {
	id := ""
	if revision > 0 {
		id = strconv.FormatUint(revision, 10)
	}
	return w.out.send(string(kind), id, event{kind, object})
}

// docWatch describes the lines of the stream.
func docWatch(op *huma.Operation, schemas huma.Registry) {
	op.Description = "One document a line, or server-sent events with Accept: text/event-stream. The stream ends with an ERROR event when the reader has fallen too far behind (its object then has status 410: list, and watch from the revision of the list) or the launcher closes (503)."
	op.Responses["200"] = &huma.Response{
		Description: "The changes, as they happen; each line is one event",
		Content: eventContent(&huma.Schema{OneOf: []*huma.Schema{
			schemaOf[launcherapi.WatchEvent](schemas), schemaOf[heartbeatEvent](schemas), schemaOf[errorEvent](schemas),
		}}, "An event each, with its revision as id"),
	}
}

// heartbeatEvent and errorEvent are events in the document.
type (
	heartbeatEvent struct {
		Type   launcherapi.EventType `json:"type" enum:"HEARTBEAT"`
		Object launcherapi.Heartbeat `json:"object"`
	}
	errorEvent struct {
		Type   launcherapi.EventType `json:"type" enum:"ERROR"`
		Object launcherapi.Problem   `json:"object"`
	}
)
