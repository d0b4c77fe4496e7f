package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/tracing"
)

// Tracing sends the spans of actuations to a collector.
type Tracing struct {
	sent   *tracing.Tracing
	tracer trace.Tracer
}

// OpenTracing begins to send spans where the environment names a collector. It
// gives nil, which costs nothing, where the environment does not.
func OpenTracing(ctx context.Context, getenv func(string) string) (*Tracing, error) {
	sent, err := tracing.Open(ctx, getenv, "hotseat-controller", sdktrace.WithIDGenerator(ids{}))
	if err != nil || sent == nil {
		return nil, err
	}
	return &Tracing{sent, sent.Tracer("hotseat.dev/hotseat/dualpods")}, nil
}

// Close sends what is left.
func (t *Tracing) Close() error {
	if t == nil {
		return nil
	}
	return t.sent.Close()
}

// Header is what goes along with a call that is part of a trace, by
// https://www.w3.org/TR/trace-context/.
func Header(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, header)
	return header
}

type rootKey struct{}

// ids gives the trace of an actuation the UID of its requester for an id, and
// its root span one made of that: a controller that starts in the middle of an
// actuation goes on with the same trace.
type ids struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	uid, _ := ctx.Value(rootKey{}).(types.UID)
	of := tracing.Actuation(uid)
	return of.TraceID(), of.SpanID()
}

// NewSpanID implements [sdktrace.IDGenerator].
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], max(1, rand.Uint64()))
	return id
}
