package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

type modelInput struct {
	ID string `path:"model_id" doc:"Id of the model, as the list has it." example:"7d7595bb7c02b1a747c5e01ca5f89f0d"`
}

type pullInput struct {
	Body launcherapi.ModelRequest
}

type pullOutput struct {
	Status int
	Body   launcherapi.Model
}

// errNoStore is the answer to every question about models where there are none.
var errNoStore = &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "this launcher has no model store; start it with --model-store"}

func (s *Server) listModels(context.Context, *none) (*body[launcherapi.ModelList], error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	return answer(s.opts.Models.List())
}

func (s *Server) getModel(_ context.Context, in *modelInput) (*body[launcherapi.Model], error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	return answer(s.opts.Models.Get(in.ID))
}

func (s *Server) pullModel(ctx context.Context, in *pullInput) (*pullOutput, error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	m, err := s.opts.Models.Pull(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if m.State == launcherapi.ModelReady {
		return &pullOutput{http.StatusOK, m}, nil
	}
	return &pullOutput{http.StatusAccepted, m}, nil
}

func docPull(op *huma.Operation, schemas huma.Registry) {
	op.Description = "Answers when the source has listed the files of the model and there is room for them: 202 while the launcher fetches it, 200 when it is there. The fetch continues by itself; the watch stream shows its progress. A second call for the same model joins its fetch. A client that hangs up before the answer ends the fetch. The cause of an error is the reason of the fetch: NotFound, AccessDenied, Unavailable, IntegrityMismatch, CapacityExceeded, Invalid or Internal."
	for status, text := range map[string]string{"200": "It is there", "202": "It is being fetched"} {
		op.Responses[status] = &huma.Response{Description: text, Content: map[string]*huma.MediaType{jsonContentType: {Schema: schemaOf[launcherapi.Model](schemas)}}}
	}
}

type removeModelInput struct {
	ID       string `path:"model_id" doc:"Id of the model, as the list has it." example:"7d7595bb7c02b1a747c5e01ca5f89f0d"`
	WantedBy string `query:"wanted_by" maxLength:"256" doc:"The name that no longer wants the model, as given when it was pulled. When others want it too, it stays." example:"pool-a"`
}

func (s *Server) deleteModel(ctx context.Context, in *removeModelInput) (*body[launcherapi.Model], error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	return answer(s.opts.Models.Remove(ctx, in.ID, in.WantedBy))
}

func docRemoveModel(op *huma.Operation, _ huma.Registry) {
	op.Description = "Refused (409) while instances use it, or while anyone but wanted_by wants it. With wanted_by, a model that others want too stays, and the answer shows it unchanged."
}

func (s *Server) warmModel(ctx context.Context, in *modelInput) (*body[launcherapi.WarmedModel], error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	return answer(s.opts.Models.Warm(ctx, in.ID))
}

func docWarm(op *huma.Operation, _ huma.Registry) {
	op.Description = "Reads the files of a model from the disk into the page cache, so that the next engine that loads it reads no disk. Answers when that is done; a client that hangs up ends the reading. The launcher reads only as much as fits into free main memory, within the limits of its cgroups; left_bytes is the rest. It reads one model at a time. Refused (409) for a model that is not complete."
}

type watchModelsInput struct {
	Heartbeat string `query:"heartbeat" doc:"Send a HEARTBEAT this often, and one after what there is: a string such as 10s, or a number of seconds. At least 100ms, or it is refused; absent or 0: none is sent." example:"10s"`
	Accept    string `header:"Accept" hidden:"true"`
}

func (s *Server) watchModels(_ context.Context, in *watchModelsInput) (*streamOutput, error) {
	if s.opts.Models == nil {
		return nil, errNoStore
	}
	heartbeat, err := heartbeatOf(in.Heartbeat)
	if err != nil {
		return nil, err
	}
	return s.events(in.Accept, func(ctx context.Context, out *eventStream) {
		w := modelWatcher{models: s.opts.Models, out: out, heartbeat: heartbeat, shown: map[string]launcherapi.Model{}}
		w.run(ctx)
	}), nil
}

// modelWatcher is one reader of what happens to models. What the store has is on
// the disk, so the watcher compares what is there with what it has told.
type modelWatcher struct {
	models    Models
	out       *eventStream
	heartbeat time.Duration // 0: none
	shown     map[string]launcherapi.Model
}

// modelPause is the time between two looks: a fetch makes progress all the time.
const modelPause = 250 * time.Millisecond

// run tells of changes until the reader leaves or the server shuts down.
func (w *modelWatcher) run(ctx context.Context) {
	var beat <-chan time.Time
	if w.heartbeat > 0 {
		ticker := time.NewTicker(w.heartbeat)
		defer ticker.Stop()
		beat = ticker.C
	}
	for begun := false; ; begun = true {
		changed, pause := w.models.Changed(), time.NewTimer(modelPause)
		err := w.tell()
		if err == nil && beat != nil && !begun { // by which the reader knows that this was all
			err = w.beat()
		}
		if err == nil {
			err = awaitOr(ctx, changed, beat, w.beat)
		}
		if err == nil {
			err = awaitOr(ctx, pause.C, beat, w.beat)
		}
		pause.Stop()
		switch {
		case err == nil:
		case launcher.CodeOf(err) != "":
			_ = w.send(launcherapi.EventError, problemOf(err).Problem) // the stream ends either way
			return
		default:
			return // the reader has left
		}
	}
}

// awaitOr waits for something, and calls do at each beat meanwhile.
func awaitOr[T any](ctx context.Context, done <-chan T, beat <-chan time.Time, do func() error) error {
	for {
		select {
		case <-done:
			return nil
		case <-beat:
			if err := do(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *modelWatcher) beat() error {
	return w.send(launcherapi.EventHeartbeat, launcherapi.ModelHeartbeat{TotalModels: len(w.shown)})
}

// tell sends what has changed since it was last called.
func (w *modelWatcher) tell() error {
	list, err := w.models.List()
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, m := range list.Models {
		there[m.ID] = true
		before, known := w.shown[m.ID]
		kind := launcherapi.EventUpdated
		if !known {
			kind = launcherapi.EventCreated
		} else if reflect.DeepEqual(before, m) {
			continue
		}
		if err := w.send(kind, m); err != nil {
			return err
		}
		w.shown[m.ID] = m
	}
	for id, m := range w.shown {
		if !there[id] {
			if err := w.send(launcherapi.EventDeleted, m); err != nil {
				return err
			}
			delete(w.shown, id)
		}
	}
	return nil
}

func (w *modelWatcher) send(kind launcherapi.EventType, object any) error {
	return w.out.send(string(kind), "", event{kind, object})
}

func docWatchModels(op *huma.Operation, schemas huma.Registry) {
	op.Description = "One document a line, or server-sent events with Accept: text/event-stream. The stream begins with a CREATED for each model that there is, and, where heartbeats are asked for, with a HEARTBEAT after the last of these; what follows is what has changed, progress included, at most four times a second. It tells what other processes do to the store as well. It ends with an ERROR event when the launcher closes (503) or cannot read the store (507)."
	op.Responses["200"] = &huma.Response{
		Description: "The changes, as they happen; each line is one event",
		Content: eventContent(&huma.Schema{OneOf: []*huma.Schema{
			schemaOf[launcherapi.ModelEvent](schemas), schemaOf[modelHeartbeatEvent](schemas), schemaOf[errorEvent](schemas),
		}}, "An event each"),
	}
}

// modelHeartbeatEvent is an event in the document.
type modelHeartbeatEvent struct {
	Type   launcherapi.EventType      `json:"type" enum:"HEARTBEAT"`
	Object launcherapi.ModelHeartbeat `json:"object"`
}
