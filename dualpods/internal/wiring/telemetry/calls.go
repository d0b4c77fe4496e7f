package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// outcomeOf names what became of a call.
func outcomeOf(ctx context.Context, err error) string {
	if err == nil {
		return "done"
	}
	if undone, ok := errors.AsType[*client.UndoneError](err); ok {
		if undone.Result.Outcome == launcherapi.OutcomeUndoFailed {
			return "undo_failed"
		}
		return "undone"
	}
	if _, ok := errors.AsType[*launcher.Error](err); ok {
		return "refused"
	}
	if _, ok := errors.AsType[*spi.RefusedError](err); ok {
		return "refused"
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return "cancelled"
	}
	return "unreachable"
}

// timed makes a call and notes how long it took.
func timed[T any](ctx context.Context, into *prometheus.HistogramVec, call string, do func() (T, error)) (T, error) {
	began := time.Now()
	answer, err := do()
	into.WithLabelValues(call, outcomeOf(ctx, err)).Observe(time.Since(began).Seconds())
	return answer, err
}

// Launcher is a launcher whose calls are noted.
func (t *Telemetry) Launcher(l provider.Provider) provider.Provider {
	return &observedLauncher{l, t}
}

type observedLauncher struct {
	launcher provider.Provider
	t        *Telemetry
}

func (l *observedLauncher) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	ctx, over := l.t.swapping(ctx)
	result, err := timed(ctx, l.t.metrics.launchers, "swap", func() (launcherapi.SwapResult, error) {
		return l.launcher.SwapOnce(ctx, key, req, progress)
	})
	over(result, err)
	return result, err
}

func (l *observedLauncher) CallOff(ctx context.Context, key string) error {
	_, err := timed(ctx, l.t.metrics.launchers, "call_off", func() (struct{}, error) { return struct{}{}, l.launcher.CallOff(ctx, key) })
	return err
}

func (l *observedLauncher) Sleep(ctx context.Context, id string, req launcherapi.SleepRequest) (launcherapi.Instance, error) {
	return timed(ctx, l.t.metrics.launchers, "sleep", func() (launcherapi.Instance, error) { return l.launcher.Sleep(ctx, id, req) })
}

func (l *observedLauncher) Delete(ctx context.Context, id string) (launcherapi.Instance, error) {
	return timed(ctx, l.t.metrics.launchers, "delete", func() (launcherapi.Instance, error) { return l.launcher.Delete(ctx, id) })
}

// Requesters are requester programs whose calls are noted.
func (t *Telemetry) Requesters(r binding.Requesters) binding.Requesters {
	return &observedRequesters{r, t}
}

type observedRequesters struct {
	requesters binding.Requesters
	t          *Telemetry
}

func (r *observedRequesters) Accelerators(ctx context.Context, address string) ([]string, error) {
	began := time.Now()
	uuids, err := timed(ctx, r.t.metrics.programs, "accelerators", func() ([]string, error) { return r.requesters.Accelerators(ctx, address) })
	r.t.asked(ctx, call{began, time.Now(), err})
	return uuids, err
}

func (r *observedRequesters) Proxy(ctx context.Context, address string) (requesterapi.Proxy, error) {
	return timed(ctx, r.t.metrics.programs, "proxy", func() (requesterapi.Proxy, error) { return r.requesters.Proxy(ctx, address) })
}

func (r *observedRequesters) Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (requesterapi.Proxy, error) {
	return timed(ctx, r.t.metrics.programs, "bind", func() (requesterapi.Proxy, error) { return r.requesters.Bind(ctx, address, config) })
}

func (r *observedRequesters) Unbind(ctx context.Context, address, name string, drain time.Duration) (requesterapi.Unbound, error) {
	return timed(ctx, r.t.metrics.programs, "unbind", func() (requesterapi.Unbound, error) {
		return r.requesters.Unbind(ctx, address, name, drain)
	})
}

func (r *observedRequesters) BecomeReady(ctx context.Context, address, name string) error {
	return r.plain(ctx, "become_ready", func() error { return r.requesters.BecomeReady(ctx, address, name) })
}

func (r *observedRequesters) BecomeUnready(ctx context.Context, address, name string) error {
	return r.plain(ctx, "become_unready", func() error { return r.requesters.BecomeUnready(ctx, address, name) })
}

func (r *observedRequesters) Hold(ctx context.Context, address string, hold requesterapi.Hold) (requesterapi.Proxy, error) {
	return timed(ctx, r.t.metrics.programs, "hold", func() (requesterapi.Proxy, error) { return r.requesters.Hold(ctx, address, hold) })
}

// plain is timed for a call without an answer.
func (r *observedRequesters) plain(ctx context.Context, call string, do func() error) error {
	_, err := timed(ctx, r.t.metrics.programs, call, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// Printers are requester programs that print logs.
type Printers interface {
	SetLog(ctx context.Context, address, log, binding string, start int64, chunk []byte) (requesterapi.LogPosition, error)
}

// Printers are requester programs whose calls are noted.
func (t *Telemetry) Printers(p Printers) Printers { return &observedPrinters{p, t} }

type observedPrinters struct {
	printers Printers
	t        *Telemetry
}

func (p *observedPrinters) SetLog(ctx context.Context, address, log, name string, start int64, chunk []byte) (requesterapi.LogPosition, error) {
	position, err := timed(ctx, p.t.metrics.programs, "set_log", func() (requesterapi.LogPosition, error) {
		return p.printers.SetLog(ctx, address, log, name, start, chunk)
	})
	p.t.metrics.logBytes.Add(float64(position.Written))
	return position, err
}
