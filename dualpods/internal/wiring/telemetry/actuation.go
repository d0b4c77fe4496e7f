package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// actuation is the trace of a requester on its way to being ready: a root span
// from its creation on, and below it
//
//	wait: ROW       nothing could be done but to wait, at that row of spec/binding.md
//	wait: Pod ready its program is ready, the gate open, and the kubelet has not said so yet
//	accelerators    its program was asked for its GPUs
//	swap            the launcher was asked, with the phases of the swap below
//	others          each step, by its name: add record, bind, become ready, …
//
// A nil actuation is one that nobody wants to hear of.
type actuation struct {
	tracer trace.Tracer
	ctx    context.Context //nolint:containedctx // holds the root span
	root   trace.Span
	calls  int       // swaps under way
	row    string    // that it waits at; empty: it does not wait
	since  time.Time // that it waits
	// kubelet is since when the kubelet has all that makes the Pod ready, beside
	// which labels and status are written; zero: it has not.
	kubelet time.Time
}

func (t *Telemetry) newActuation(s binding.Sight, created time.Time) *actuation {
	if t.opts.Tracing == nil {
		return nil
	}
	who := &s.Observation.Requester
	ctx, root := t.opts.Tracing.tracer.Start(context.WithValue(context.Background(), rootKey{}, who.UID), "actuation",
		trace.WithNewRoot(), trace.WithTimestamp(created), trace.WithAttributes(
			attribute.String("k8s.namespace.name", who.Namespace),
			attribute.String("k8s.pod.name", who.Name),
			attribute.String("k8s.pod.uid", string(who.UID)),
		))
	return &actuation{tracer: t.opts.Tracing.tracer, ctx: ctx, root: root, row: waitsFor(s), since: created}
}

// waitsFor is the row that a decision leaves the requester to wait at; empty: there
// is something to do, or it is served.
func waitsFor(s binding.Sight) string {
	if s.Err != nil {
		return s.Step.Rule // until the step is tried again
	}
	switch s.Step.Do {
	case decide.Nothing, decide.Retry, decide.Tell:
		return s.Step.Rule
	case decide.Unbind, decide.DeleteInstance, decide.CreateLauncher: // were begun
		return s.Step.Rule
	default:
		return ""
	}
}

// saw adds what a decision tells.
func (a *actuation) saw(s binding.Sight) {
	if a == nil {
		return
	}
	row := waitsFor(s)
	if a.calls > 0 {
		row = "" // the span of the swap says so
	}
	a.wait(row, s)
	a.leave(s)
	switch s.Step.Do {
	case decide.Nothing, decide.Retry, decide.Swap: // a swap's call tells of itself
	default:
		a.child(string(s.Step.Do), s.Began, s.Ended, s.Err, attribute.String("hotseat.row", s.Step.Rule), attribute.String("hotseat.why", s.Step.Why))
	}
}

// wait ends one wait and begins another.
func (a *actuation) wait(row string, s binding.Sight) {
	if row == a.row {
		return
	}
	if a.row != "" {
		a.child("wait: "+a.row, a.since, s.Began, nil)
	}
	a.row, a.since = row, s.Ended
}

// leave notes since when the Pod's readiness is left to the kubelet.
func (a *actuation) leave(s binding.Sight) {
	if s.Err != nil {
		return
	}
	switch s.Step.Do {
	case decide.BecomeUnready, decide.Retract:
		a.kubelet = time.Time{}
	case decide.OpenGate:
		a.kubelet = s.Ended
	case decide.BecomeReady:
		if !s.Observation.Requester.Gate {
			a.kubelet = s.Ended
		}
	default:
		if s.Served() && a.kubelet.IsZero() && s.Observation.Requester.PodReady.IsZero() { // an earlier process did the rest
			a.kubelet = s.Ended
		}
	}
}

func (a *actuation) child(name string, began, ended time.Time, err error, attributes ...attribute.KeyValue) {
	if a == nil {
		return
	}
	_, span := a.tracer.Start(a.ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	failed(span, err)
	span.End(trace.WithTimestamp(ended))
}

func failed(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

// end ends the trace. why says what became of it, unless the requester is ready.
func (a *actuation) end(at time.Time, why string, o *decide.Observation) {
	if a == nil {
		return
	}
	if a.row != "" && a.since.Before(at) {
		a.child("wait: "+a.row, a.since, at, nil)
	}
	if !a.kubelet.IsZero() {
		if at.Before(a.kubelet) { // the kubelet was faster than the answer
			a.kubelet = at
		}
		a.child("wait: Pod ready", a.kubelet, at, nil)
	}
	a.root.SetAttributes(attribute.String("k8s.node.name", o.Node.Name))
	if o.Launcher != nil {
		a.root.SetAttributes(attribute.String("hotseat.launcher", o.Launcher.Name))
	}
	if o.Record != nil {
		a.root.SetAttributes(attribute.String("hotseat.instance", o.Record.Instance), attribute.StringSlice("hotseat.gpus", o.Record.GPUs))
	}
	if o.Record != nil && o.Launcher != nil {
		a.root.SetAttributes(attribute.String("hotseat.path", pathOf(o)))
	}
	if why != "" {
		a.root.SetStatus(codes.Error, why)
	}
	a.root.End(trace.WithTimestamp(at))
}

// call is one that is over.
type call struct {
	began, ended time.Time
	err          error
}

// asked notes that a requester program was asked for its GPUs.
func (t *Telemetry) asked(ctx context.Context, c call) {
	uid, ok := dualpods.RequesterIn(ctx)
	if !ok || t.opts.Tracing == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.requesters[uid]; r != nil {
		r.actuation.asked(c)
		return
	}
	t.early[uid] = c
}

func (a *actuation) asked(c call) { a.child("accelerators", c.began, c.ended, c.err) }

// swapping begins the span of a call for the requester that ctx names. The call
// is made with the context that it gives.
func (t *Telemetry) swapping(ctx context.Context) (context.Context, func(launcherapi.SwapResult, error)) {
	uid, _ := dualpods.RequesterIn(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requesters[uid]
	if r == nil || r.actuation == nil {
		return ctx, func(launcherapi.SwapResult, error) {}
	}
	a := r.actuation
	a.calls++
	_, span := a.tracer.Start(a.ctx, "swap", trace.WithSpanKind(trace.SpanKindClient))
	return trace.ContextWithSpan(ctx, span), func(result launcherapi.SwapResult, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.calls--
		ended := time.Now()
		if undone, ok := errors.AsType[*client.UndoneError](err); ok {
			result = undone.Result
		} else if refused, ok := errors.AsType[*launcher.Error](err); ok {
			result.SwapID = refused.SwapID // the log of the launcher names it, too
		}
		span.SetAttributes(attribute.String("hotseat.swap", result.SwapID), attribute.String("hotseat.outcome", result.Outcome))
		a.phases(trace.ContextWithSpan(a.ctx, span), result, ended)
		failed(span, err)
		span.End(trace.WithTimestamp(ended))
	}
}

// phases are the spans of a swap's phases, at the launcher's time, but not after
// the answer: its clock may be ahead.
func (a *actuation) phases(ctx context.Context, result launcherapi.SwapResult, answered time.Time) {
	if result.BeganAt.IsZero() {
		return // an answer of a launcher that does not say
	}
	began := result.BeganAt.Round(0) // by the wall clock alone, as it came by the wire
	if ahead := began.Add(milliseconds(result.TotalMS)).Sub(answered); ahead > 0 {
		began = began.Add(-ahead)
	}
	for _, p := range result.Phases {
		at := began.Add(milliseconds(p.BeganMS))
		_, span := a.tracer.Start(ctx, p.Name, trace.WithTimestamp(at), trace.WithAttributes(attribute.String("hotseat.instance", p.InstanceID)))
		span.End(trace.WithTimestamp(at.Add(milliseconds(p.DurationMS))))
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
