package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// Variables that switch tracing on and off; these and others are described in
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
// and https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
)

// flushTime bounds the sending of what is left when tracing ends.
const flushTime = 5 * time.Second

// Tracing sends spans to a collector, by OTLP over HTTP.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// OpenTracing begins to send spans where the environment names a collector. It
// gives nil, which costs nothing, where the environment does not.
func OpenTracing(ctx context.Context, getenv func(string) string) (*Tracing, error) {
	on, err := configured(getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot send traces: %w", err)
	}
	self, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "hotseat-controller")),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot send traces: the resource of the environment: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(self), sdktrace.WithIDGenerator(ids{}))
	return &Tracing{provider: provider, tracer: provider.Tracer("hotseat.dev/hotseat/dualpods")}, nil
}

// configured says whether the environment wants traces.
func configured(getenv func(string) string) (bool, error) {
	name := envTracesEndpoint
	if getenv(name) == "" {
		name = envEndpoint
	}
	endpoint := getenv(name)
	if endpoint == "" || getenv(envDisabled) == "true" || getenv(envExporter) == "none" {
		return false, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false, fmt.Errorf("cannot send traces: %s is %q: write it like http://collector:4318", name, endpoint)
	}
	for _, name := range []string{envTracesProtocol, envProtocol} {
		protocol := getenv(name)
		if protocol == "http/protobuf" {
			break
		}
		if protocol != "" {
			return false, fmt.Errorf("cannot send traces: %s is %q: the controller speaks http/protobuf alone, by default at port 4318", name, protocol)
		}
	}
	return true, nil
}

// Close sends what is left.
func (t *Tracing) Close() error {
	if t == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), flushTime)
	defer stop()
	return t.provider.Shutdown(ctx)
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
	of, err := uuid.Parse(string(uid))
	sum := sha256.Sum256([]byte(uid))
	if err != nil {
		copy(of[:], sum[16:]) // no UUID: the API server makes none such
	}
	return trace.TraceID(of), trace.SpanID(sum[:8])
}

// NewSpanID implements [sdktrace.IDGenerator].
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], max(1, rand.Uint64()))
	return id
}
