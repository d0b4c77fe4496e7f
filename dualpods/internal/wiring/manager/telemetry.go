package manager

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/wiring/telemetry"
)

// openTelemetry has the metrics answered, and traces sent where the environment
// says so.
func openTelemetry(ctx context.Context, views *nodeview.Set, followers func() int, log logr.Logger) (*telemetry.Telemetry, func() error, error) {
	tracing, err := telemetry.OpenTracing(ctx, os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	if tracing != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "cannot send traces") }))
	}
	watcher := telemetry.New(telemetry.Options{Streams: views.Streams, Followers: followers, Tracing: tracing})
	if err := metrics.Registry.Register(watcher); err != nil {
		_ = tracing.Close() // nothing was traced yet
		return nil, nil, fmt.Errorf("cannot answer metrics: %w", err)
	}
	return watcher, func() error {
		metrics.Registry.Unregister(watcher)
		return tracing.Close()
	}, nil
}
