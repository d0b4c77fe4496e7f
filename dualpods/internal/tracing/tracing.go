// Package tracing sends OpenTelemetry traces, and has the ids of the traces of actuations.
package tracing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
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
type Tracing struct{ provider *sdktrace.TracerProvider }

// Open begins to send spans of a service, where the environment names a collector. It gives nil, which costs nothing,
// where the environment does not.
func Open(ctx context.Context, getenv func(string) string, service string, options ...sdktrace.TracerProviderOption) (*Tracing, error) {
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
		resource.WithAttributes(attribute.String("service.name", service)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot send traces: the resource of the environment: %w", err), exporter.Shutdown(ctx))
	}
	return &Tracing{sdktrace.NewTracerProvider(append(options, sdktrace.WithBatcher(exporter), sdktrace.WithResource(self))...)}, nil
}

// Tracer returns a tracer; nil: tracing is off.
func (t *Tracing) Tracer(name string) trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(name)
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

// Actuation returns the root span of the actuation of a requester: the id of its trace is the requester's UID.
func Actuation(requester types.UID) trace.SpanContext {
	of, err := uuid.Parse(string(requester))
	sum := sha256.Sum256([]byte(requester))
	if err != nil {
		copy(of[:], sum[16:]) // no UUID: the API server makes none such
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(of), SpanID: trace.SpanID(sum[:8]), TraceFlags: trace.FlagsSampled, Remote: true})
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
			return false, fmt.Errorf("cannot send traces: %s is %q: hotseat speaks http/protobuf alone, by default at port 4318", name, protocol)
		}
	}
	return true, nil
}
