package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

type sleepInput struct {
	ID   string `path:"instance_id" doc:"Id of the instance." example:"qwen3-8b"`
	Body *launcherapi.SleepRequest
}

type wakeInput struct {
	ID   string `path:"instance_id" doc:"Id of the instance." example:"qwen3-8b"`
	Body *launcherapi.WakeRequest
}

type verbOutput struct {
	Status int
	Body   launcherapi.Instance
}

func (s *Server) sleep(ctx context.Context, in *sleepInput) (*verbOutput, error) {
	req := orZero(in.Body)
	view, err := s.opts.Instances.Sleep(in.ID, launcher.VerbRequest{
		Level: req.Level, Drain: drainOf(req.DrainTimeout), Limit: orZero(req.Timeout).D(),
	})
	return s.outcome(ctx, view, err, req.Wait, launcher.Sleeping)
}

func (s *Server) wake(ctx context.Context, in *wakeInput) (*verbOutput, error) {
	req := orZero(in.Body)
	view, err := s.opts.Instances.Wake(in.ID, launcher.VerbRequest{Limit: orZero(req.Timeout).D()})
	return s.outcome(ctx, view, err, req.Wait, launcher.Awake)
}

// outcome answers a verb that has begun: when it is over, or at once when the
// client does not want to wait.
func (s *Server) outcome(ctx context.Context, view launcherapi.Instance, err error, wait *bool, want launcher.State) (*verbOutput, error) {
	if err != nil {
		return nil, err
	}
	if wait != nil && !*wait {
		return &verbOutput{http.StatusAccepted, view}, nil
	}
	view, err = s.opts.Instances.AwaitState(ctx, view.InstanceID, want)
	if err != nil {
		return nil, err
	}
	return &verbOutput{http.StatusOK, view}, nil
}

func orZero[T any](v *T) T {
	if v == nil {
		return *new(T)
	}
	return *v
}

// drainOf is the drain time of a request. It is negative, for the launcher's
// default, where none is given, or 0.
func drainOf(d *launcherapi.Duration) time.Duration {
	if d == nil || *d == 0 {
		return -1
	}
	return d.D()
}

func docVerb(op *huma.Operation, schemas huma.Registry) {
	op.Description = "Idempotent: the answer is the same for an instance that is already in the state, or on its way to it. A duration of 0 is the default."
	op.Responses["202"] = &huma.Response{
		Description: "With wait=false: the verb has begun; the watch stream shows the outcome",
		Content:     map[string]*huma.MediaType{jsonContentType: {Schema: schemaOf[launcherapi.Instance](schemas)}},
	}
}
