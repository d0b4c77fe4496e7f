package binding

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// callLauncher begins a call that the launcher's watch stream tells the outcome of.
func (c *Controller) callLauncher(n *nodeWork, l *launcherPod, id string, do decide.Action, record *podmeta.Binding, o *decide.Observation) error {
	api := c.opts.Providers.Provider(l.key())
	if api == nil {
		return fmt.Errorf("cannot ask launcher %s: it is not watched", l.pod.Name)
	}
	switch do {
	case decide.Swap:
		isChange, server := record.Instance != o.Record.Instance, o.Requester.Server // in place
		if isChange {
			server = o.Requester.NextServer
		}
		request, key, call := swapRequest(record, o.Form, o.Requester.Rank, server), record.SwapKey(), swapKey(l, record)
		halves := o.Requester.Rank.IsOne() || isChange
		if halves {
			request.Prepare, request.Until = true, launcherapi.UntilHealthy
		}
		n.calls.begin(call, true, func(ctx context.Context) (uint64, error) {
			result, err := api.SwapOnce(dualpods.ForRequester(ctx, record.RequesterUID), key, request, c.progress(n, call, halves))
			if err != nil || result.In == nil {
				return 0, answered(err)
			}
			return result.In.Revision, nil
		})
	case decide.CallOff: // one that has begun goes on, to be put to rest when its instance is there
		key, call := record.SwapKey(), swapKey(l, record)
		n.calls.begin(callOffKey(l, record), true, func(ctx context.Context) (uint64, error) {
			err := api.CallOff(ctx, key)
			if launcher.CodeOf(err) == launcherapi.CodeNotFound {
				n.calls.hangUp(call)
			}
			return 0, answered(err)
		})
	case decide.Sleep:
		key := sleepKey(l, id)
		n.calls.begin(key, false, func(ctx context.Context) (uint64, error) {
			i, err := api.Sleep(ctx, id, launcherapi.SleepRequest{})
			if err == nil || refuses(err) {
				c.called(n, key, "", err)
			}
			return i.Revision, err
		})
	default:
		key := deleteKey(l, id)
		n.calls.begin(key, false, func(ctx context.Context) (uint64, error) {
			i, err := api.Delete(ctx, id)
			if launcherclient.IsNotFound(err) {
				return untold, nil
			}
			if err == nil || refuses(err) {
				c.called(n, key, "", err)
			}
			return i.Revision, err
		})
	}
	return nil
}

// answered makes errNoAnswer of an error that is no answer of the launcher's.
func answered(err error) error {
	if err != nil && (launcher.CodeOf(err) == "" || launcherclient.IsUnavailable(err)) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}

// swapRequest asks for the record's instance on its GPUs. It is the same each
// time that the record's attempt is asked for, whatever there is by then: the
// launcher takes another request with the same key for a mistake.
//
// The caller adds the two halves of a swap that waits for the others of its server or group: before it
// changes anything, and once the engine is healthy. server is the start that a rank takes part in.
func swapRequest(record *podmeta.Binding, wanted form.Form, rank podmeta.Rank, server podmeta.Server) launcherapi.SwapRequest {
	in := &launcherapi.SwapIn{InstanceID: record.Instance}
	if record.New {
		in = &launcherapi.SwapIn{
			ID: record.Instance, Args: wanted.Args, GPUUUIDs: record.GPUs,
			Annotations: map[string]string{podmeta.AnnotationMadeFor: record.Namespace + "/" + record.Name},
			EnvVars:     map[string]launcherapi.EnvValue{},
			ModelCache:  record.ModelCache,
		}
		maps.Copy(in.Annotations, record.Annotations)
		for name, value := range wanted.Env {
			in.EnvVars[name] = launcherapi.EnvValue{Value: value}
		}
	}
	request := launcherapi.SwapRequest{GPUUUIDs: record.GPUs, In: in}
	if rank.IsOne() && record.New {
		in.Rank = &launcherapi.Rank{Group: server.Group, Index: rank.Index, Size: rank.Size, Entry: server.Entry}
	}
	return request
}

// progress returns what hears how far a swap in two halves is; nil: it has none.
func (c *Controller) progress(n *nodeWork, key string, halves bool) func(launcherapi.SwapProgress) {
	if !halves {
		return nil
	}
	return func(p launcherapi.SwapProgress) {
		if p.Type == launcherapi.ProgressStarted {
			n.calls.moved(key, p)
			c.opts.SwapMoved(n.name)
			if p.Phase == launcherapi.PhaseGo { // clients are kept from a model that is about to sleep
				c.opts.Again(n.name)
			}
		}
	}
}

// callRequester calls the requester program. All but the unbinding answer at once.
func (c *Controller) callRequester(ctx context.Context, n *nodeWork, w *world, o decide.Observation, step decide.Step) error {
	address, seat := o.Requester.AdminAddress, w.spi[o.Requester.UID]
	if step.Do == decide.Unbind {
		binding, drain, process := seat.Proxy.Binding, o.Drain(c.opts.Drain), seat.Proxy.Instance
		n.calls.begin(unbindKey(o.Requester.UID), false, func(ctx context.Context) (uint64, error) {
			ctx, stop := context.WithTimeout(ctx, drain+askLimit)
			defer stop()
			_, err := c.opts.Requesters.Unbind(ctx, address, binding, drain)
			c.called(n, troubleKey(decide.Unbind, o.Requester.UID), process, err)
			return 0, err
		})
		return nil
	}
	ctx, stop := context.WithTimeout(dualpods.ForRequester(ctx, o.Requester.UID), passLimit)
	defer stop()
	switch step.Do {
	case decide.Hold, decide.EndHold:
		c.hold(ctx, n, o, seat, step.Do)
		return nil
	case decide.Bind:
		proxy, err := c.opts.Requesters.Bind(ctx, address, o.Awake().Proxy())
		n.calls.count(troubleKey(decide.Bind, o.Requester.UID), seat.Proxy.Instance, err)
		if err != nil {
			return err
		}
		seat.Proxy = proxy
		return nil
	case decide.BecomeReady:
		err := c.opts.Requesters.BecomeReady(ctx, address, o.Bound().Binding())
		n.calls.count(troubleKey(decide.BecomeReady, o.Requester.UID), seat.Proxy.Instance, err)
		if err != nil {
			return err
		}
		seat.Proxy.Ready = true
		return nil
	default:
		err := c.opts.Requesters.BecomeUnready(ctx, address, seat.Proxy.Binding)
		c.called(n, troubleKey(decide.BecomeUnready, o.Requester.UID), seat.Proxy.Instance, err)
		seat.Proxy.Ready = err != nil
		return nil // where it failed clients are kept away otherwise, in this pass
	}
}

// hold tells the requester program to hold connections for the record, or to hold none. While the
// model is on its way, the program holds connections that come too early. Clients see that a
// requester is there by its readiness gate alone: only a Pod that lists the gate holds. A call that
// fails counts as one in vain; the pass goes on.
func (c *Controller) hold(ctx context.Context, n *nodeWork, o decide.Observation, seat *decide.SPI, do decide.Action) {
	var err error
	if do == decide.Hold {
		var proxy requesterapi.Proxy
		proxy, err = c.opts.Requesters.Hold(ctx, o.Requester.AdminAddress, requesterapi.Hold{Binding: o.Record.SwapKey(), ServingPort: uint16(o.Record.ServingPort)})
		if err == nil {
			seat.Proxy = proxy
		}
	} else if _, err = c.opts.Requesters.Unbind(ctx, o.Requester.AdminAddress, o.Holding(), 0); err == nil {
		seat.Proxy.Holding = ""
	}
	c.called(n, troubleKey(do, o.Requester.UID), seat.Proxy.Instance, err)
}

func swapKey(l *launcherPod, b *podmeta.Binding) string { return swapKeyOn(l.key(), b) }

func swapKeyOn(launcher string, b *podmeta.Binding) string {
	return "swap/" + launcher + "/" + b.SwapKey()
}

func sleepKey(l *launcherPod, id string) string { return "sleep/" + l.key() + "/" + id }

func deleteKey(l *launcherPod, id string) string { return "delete/" + l.key() + "/" + id }

func askKey(uid types.UID) string { return "ask/" + string(uid) }

func unbindKey(uid types.UID) string { return "unbind/" + string(uid) }

func logKey(uid types.UID, b *podmeta.Binding) string {
	return "log/" + string(uid) + "/" + b.SwapKey()
}

func callOffKey(l *launcherPod, b *podmeta.Binding) string { return callOffOf(swapKey(l, b)) }

func callOffOf(swapKey string) string { return swapKey + "/call-off" }

func troubleKey(do decide.Action, uid types.UID) string { return string(do) + "/" + string(uid) }
