package door

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/dualpods/internal/tracing"
)

// The trace of a request continues the trace of its client, if there is one. It has a span for the whole request, and
// these spans below it:
//
//	hold    it waits for a Pod; below it, if no Pod served the Model:
//	  placement  until the chosen Pod has its place
//	  swap       from then on, until it serves
//	choose  a Pod is chosen; after a wait with a link to the actuation of that Pod
//	proxy   it is passed to the Pod, until the answer begins
//
// The Pod gets the traceparent of the span proxy.

// traceContext reads and writes https://www.w3.org/TR/trace-context/.
var traceContext propagation.TraceContext

// trace begins the span of a request.
func (d *Door) trace(q *request) {
	if d.opts.Tracer == nil {
		q.span = noop.Span{}
		return
	}
	ctx := traceContext.Extract(q.r.Context(), propagation.HeaderCarrier(q.r.Header))
	_, q.span = d.opts.Tracer.Start(ctx, q.r.Method+" "+q.r.URL.Path, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", q.r.Method), attribute.String("url.path", q.r.URL.Path)))
}

// endTrace ends the span of a request. code is the status of the answer, as metrics count it.
func (q *request) endTrace(code int) {
	if q.span.IsRecording() {
		q.span.SetAttributes(attribute.Int("http.response.status_code", code))
		if q.model != nil {
			q.span.SetAttributes(attribute.String("k8s.namespace.name", q.model.Key.Namespace), attribute.String("hotseat.model", q.model.Key.Name), attribute.String("hotseat.entry", q.entry))
		}
		if code >= http.StatusInternalServerError {
			q.span.SetStatus(codes.Error, http.StatusText(code))
		}
	}
	q.span.End()
}

// part begins a span below that of a request.
func (d *Door) part(q *request, name string, options ...trace.SpanStartOption) trace.Span {
	if d.opts.Tracer == nil {
		return noop.Span{}
	}
	_, span := d.opts.Tracer.Start(trace.ContextWithSpan(q.r.Context(), q.span), name, options...)
	return span
}

// hold is the first wait of a request, as its trace shows it.
type hold struct {
	span     trace.Span
	from, to time.Time
	atZero   bool // no Pod served the Model when it began
	shown    bool // showActuation has added its parts
}

// begin notes the first wait of a request.
func (h *hold) begin(span trace.Span, from time.Time, atZero bool) {
	if h.span == nil {
		h.span, h.from, h.atZero = span, from, atZero
	}
}

// showActuation adds what the first wait was for: the placement of the Pod that answers, and the swap there. A Pod that had
// its place before needed only the swap.
func (d *Door) showActuation(q *request, to *directory.Endpoint) {
	h := &q.hold
	if h.span == nil || !h.span.SpanContext().IsValid() || !h.atZero || h.shown || to.Placed.IsZero() {
		return
	}
	h.shown = true
	placed := to.Placed
	if placed.After(h.to) { // the clocks of the controller and of the front door differ
		placed = h.to
	}
	below := trace.ContextWithSpan(q.r.Context(), h.span)
	part := func(name string, from, to time.Time, pod string) {
		_, span := d.opts.Tracer.Start(below, name, trace.WithTimestamp(from), trace.WithAttributes(attribute.String("k8s.pod.name", pod)))
		span.End(trace.WithTimestamp(to))
	}
	if placed.After(h.from) {
		part("placement", h.from, placed, to.Pod)
	} else {
		placed = h.from
	}
	part("swap", placed, h.to, to.Pod)
}

// endPart ends a span, which has failed if there is an error.
func endPart(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// noteChoice notes in a span which Pod was chosen. If the request has waited, the span has a link to the actuation of that
// Pod, which the request may have caused.
func (q *request) noteChoice(span trace.Span, to directory.Endpoint, strategy string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("k8s.pod.name", to.Pod), attribute.String("k8s.pod.uid", string(to.UID)), attribute.String("hotseat.strategy", strategy))
	if q.waited > 0 {
		span.AddLink(trace.Link{SpanContext: tracing.Actuation(to.UID)})
	}
}

// passTrace passes on the trace of a span in the header of a request. It clones the header, because an earlier attempt may
// still read it.
func passTrace(span trace.Span, sent *http.Request) {
	if span.SpanContext().IsValid() {
		sent.Header = sent.Header.Clone()
		traceContext.Inject(trace.ContextWithSpan(context.Background(), span), propagation.HeaderCarrier(sent.Header))
	}
}
