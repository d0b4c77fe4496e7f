package swap

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file reads swap requests.

// newRun returns a Run that has not begun.
func (c *Coordinator) newRun(id string) *Run {
	return &Run{
		c: c, id: id, began: time.Now(), changed: make(chan struct{}), ended: make(chan struct{}),
		begin: make(chan struct{}), commitWritten: make(chan struct{}),
		saved:  Saved{Plan: launcher.Plan{SwapID: id}, Began: time.Now()},
		result: launcherapi.SwapResult{SwapID: id, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{}},
	}
}

// newRunFor returns the Run of a request.
func (c *Coordinator) newRunFor(id string, req launcherapi.SwapRequest) (*Run, error) {
	r := c.newRun(id)
	r.req, r.limit = req, orDefault(req.Timeout, c.opts.Limits.Start)
	r.saved.Canary = req.Canary
	r.saved.Plan.Drain, r.saved.Plan.Until = orDefault(req.DrainTimeout, c.opts.Limits.Drain), r.began.Add(r.limit)
	if err := r.readHalves(); err != nil {
		return nil, err
	}
	if err := r.readOut(); err != nil {
		return nil, err
	}
	if err := r.readInAndGPUs(); err != nil {
		return nil, err
	}
	r.view = viewOf(r.saved)
	return r, nil
}

// orDefault returns a duration of a request, or the default if it is missing or 0.
func orDefault(given *launcherapi.Duration, standard time.Duration) time.Duration {
	if given == nil || *given == 0 {
		return standard
	}
	return given.D()
}

func (r *Run) readOut() error {
	var out launcherapi.SwapOut
	if r.req.Out != nil {
		out = *r.req.Out
	}
	level := 1
	switch out.Mode {
	case "", launcherapi.OutSleep:
	case launcherapi.OutStop:
		level = 2 // the instance is stopped once the other is awake: its weights are not needed any more
	default:
		return launcher.Invalidf("body.out.mode", "unknown out.mode %q; it is sleep or stop", out.Mode)
	}
	if out.Level != 0 {
		level = out.Level
	}
	if err := launcherapi.CheckSleepLevel(level); err != nil {
		return launcher.Invalidf("body.out.level", "%w", err)
	}
	r.saved.Plan.Stop, r.saved.Plan.Level = out.Mode == launcherapi.OutStop, level
	return nil
}

// readInAndGPUs reads what comes in, and the GPUs to swap on.
func (r *Run) readInAndGPUs() error {
	r.gpus = r.req.GPUUUIDs
	if err := r.readIn(); err != nil {
		return err
	}
	if len(r.gpus) == 0 {
		return launcher.Invalidf("body.gpu_uuids", "gpu_uuids is missing; name the GPUs to swap on")
	}
	r.saved.Plan.GPUs = r.gpus
	return nil
}

func (r *Run) readIn() error {
	in := r.req.In
	sup := r.c.opts.Supervisor
	if in == nil {
		return sup.KnownGPUs("body.gpu_uuids", r.gpus)
	}
	if len(r.gpus) == 0 {
		r.gpus = in.GPUUUIDs
	}
	if in.GPUUUIDs != nil && !sameSet(in.GPUUUIDs, r.gpus) {
		return launcher.Invalidf("body.in.gpu_uuids", "in.gpu_uuids and gpu_uuids differ; give one of them")
	}
	if in.InstanceID != "" {
		if describesNew(in) {
			return launcher.Invalidf("body.in", "in names the instance %s and describes a new one too; give instance_id alone, or leave it out", in.InstanceID)
		}
		view, err := sup.Get(in.InstanceID)
		if err != nil {
			return err
		}
		if len(r.gpus) == 0 {
			r.gpus = view.GPUUUIDs
		}
		if launcher.State(view.State).Ended() {
			return r.startAgain(view)
		}
		r.saved.Plan.In = in.InstanceID
		return sup.KnownGPUs("body.gpu_uuids", r.gpus)
	}
	draft, err := sup.Draft(launcher.CreateRequest{
		ID: in.ID, DryRun: r.req.DryRun,
		Spec: launcherapi.InstanceSpec{
			Options: in.Options, Args: in.Args, EnvVars: in.EnvVars, Annotations: in.Annotations, Engine: in.Engine,
			GPUUUIDs: r.gpus, StartMethod: in.StartMethod, ModelCache: in.ModelCache, Rank: in.Rank,
		},
	})
	if err != nil {
		return err
	}
	r.create(draft)
	return nil
}

// describesNew reports whether a request has anything that a new instance alone has.
func describesNew(in *launcherapi.SwapIn) bool {
	return in.Options != nil || in.Args != nil || in.ID != "" || in.EnvVars != nil || in.Engine != "" || in.Annotations != nil || in.StartMethod != "" || in.ModelCache != "" || in.Rank != nil
}

// inHasChanged reports whether the instance that the request names has ended, was started
// again, or was replaced by one on other GPUs where the request names none, since the request
// was read.
func (r *Run) inHasChanged() bool {
	in := r.req.In
	if in == nil || in.InstanceID == "" {
		return false
	}
	view, err := r.c.opts.Supervisor.Get(in.InstanceID)
	if err != nil {
		return false
	}
	namesGPUs := len(r.req.GPUUUIDs) > 0 || len(in.GPUUUIDs) > 0
	return launcher.State(view.State).Ended() != (r.draft != nil) || !namesGPUs && !sameSet(view.GPUUUIDs, r.gpus)
}

// readInAgain reads what comes in once more. If that fails, the plan keeps the name of it.
func (r *Run) readInAgain() error {
	was := r.saved.Plan.In
	r.draft, r.saved.Plan.In, r.saved.Plan.Room = nil, "", nil
	err := r.readInAndGPUs()
	if err != nil {
		r.saved.Plan.In = was
	}
	return err
}

// startAgain has the swap create an instance that has ended anew.
func (r *Run) startAgain(ended launcherapi.Instance) error {
	if !sameSet(ended.GPUUUIDs, r.gpus) {
		return launcher.Conflictf("instance %s ran on GPUs %v, not on %v; to start it on other GPUs, describe it in the request, with in.id in place of in.instance_id", ended.InstanceID, ended.GPUUUIDs, r.gpus)
	}
	draft, err := r.c.opts.Supervisor.DraftAgain(ended.InstanceID, r.req.DryRun)
	if err != nil {
		return err
	}
	r.create(draft)
	return nil
}

// create has the swap create the instance of a draft.
func (r *Run) create(draft *supervisor.Draft) {
	room := draft.Want
	room.SwapID = r.ID()
	r.draft, r.saved.Plan.In, r.saved.Plan.Room = draft, draft.ID, &room
}

// sameSet reports whether two lists name the same GPUs.
func sameSet(a, b []string) bool {
	within := func(a, b []string) bool {
		return !slices.ContainsFunc(a, func(g string) bool { return !slices.Contains(b, g) })
	}
	return within(a, b) && within(b, a)
}
