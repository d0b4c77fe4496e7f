package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// act makes a step's write, and keeps w up with what was written.
func (c *Controller) act(ctx context.Context, n *nodeWork, w *world, o decide.Observation, step decide.Step) error {
	uid := o.Requester.UID
	id := dualpods.Identity{Namespace: o.Requester.Namespace, UID: uid}
	pod := w.pod(id)
	l, record := w.boundTo(id)
	switch step.Do {
	case decide.Tell:
		return c.tell(ctx, n, w, pod, o, step)
	case decide.AddFinalizer:
		return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
			p.Finalizers = append(p.Finalizers, podmeta.FinalizerRequester)
		})
	case decide.RemoveFinalizer:
		return c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
			p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == podmeta.FinalizerRequester })
		})
	case decide.Publish:
		return n.repeats.add(o, step.Do, c.publish(ctx, n, w, pod, o))
	case decide.Retract:
		return c.retract(ctx, n, w, pod, o, step)
	case decide.OpenGate:
		return n.repeats.add(o, step.Do, c.setGate(ctx, n, w, pod, corev1.ConditionTrue, decide.StateServing, step.Why))
	case decide.DeleteRequester:
		return c.deleteRequester(ctx, pod, step)
	case decide.NextAttempt:
		err := c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error { return putRecord(p, step.Record) })
		if err == nil {
			n.calls.writes(swapKey(l, &step.Record))
		}
		return err
	case decide.NoteFailure:
		return c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error {
			p.Annotations = annotationsOf(p)
			return step.Failures.Put(p, record.Instance)
		})
	case decide.RemoveRecord:
		return c.patchLauncher(ctx, n, l, func(p *corev1.Pod) error { dropRecord(p, record.Instance, o.Now); return nil })
	case decide.Swap, decide.CallOff, decide.Sleep, decide.DeleteInstance:
		return c.callLauncher(n, l, record.Instance, step.Do, record, o.Form)
	case decide.Evict:
		return c.evict(n, w, l, record, step.Victims)
	case decide.Bind, decide.Unbind, decide.BecomeReady, decide.BecomeUnready, decide.Hold, decide.EndHold:
		return c.callRequester(ctx, n, w, o, step)
	default:
		return fmt.Errorf("no such write: %q", step.Do)
	}
}

// tell has a requester's status say what a step says.
func (c *Controller) tell(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, o decide.Observation, step decide.Step) error {
	err := c.patchRequester(ctx, n, w, pod, func(p *corev1.Pod) {
		c.setStatus(p, o, decide.ToldStatus(o, readStatus(p), step))
	})
	if err != nil { // the write is made again, and the event is told then
		return err
	}
	n.toldNow(pod.UID, step.Reason, o.Now)
	if decide.IsNews(readStatus(pod), step) {
		c.event(pod, step, "Bind")
	}
	return nil
}

// relaysLog has a requester that is to be deleted be brought the end of its
// instance's log, as far as that can be had soon, and says whether that is under
// way. It is done beside the passes: those who share the node do not wait for it.
func (c *Controller) relaysLog(n *nodeWork, o decide.Observation) bool {
	if c.opts.RelayLog == nil || o.Record == nil || o.Instance == nil || o.SPI == nil || o.Launcher == nil || !o.Launcher.Connected {
		return false
	}
	key := logKey(o.Requester.UID, o.Record)
	if asked := n.calls.attempt(key, 0); asked.Asked {
		return !asked.Over
	}
	n.calls.begin(key, true, func(ctx context.Context) (uint64, error) {
		ctx, stop := context.WithTimeout(ForRequester(ctx, o.Requester.UID), askLimit)
		defer stop()
		if err := c.opts.RelayLog(ctx, o); err != nil {
			c.log.Info("the end of an instance's log is not relayed", "requester", o.Requester.Namespace+"/"+o.Requester.Name, "instance", o.Record.Instance, "error", err.Error())
		}
		return 0, nil
	})
	return true
}

// patchRequester changes a requester's metadata by one write, which is refused
// when somebody else has changed the Pod meanwhile.
func (c *Controller) patchRequester(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, change func(*corev1.Pod)) error {
	changed := pod.DeepCopy()
	change(changed)
	if err := c.patchMetadata(ctx, pod, changed); err != nil {
		return err
	}
	if known := n.forms[pod.UID]; known.version == pod.ResourceVersion { // what the controller writes changes no form
		known.version = changed.ResourceVersion
		n.forms[pod.UID] = known
	}
	w.wrote(n, changed)
	return nil
}

// patchMetadata brings a Pod's metadata to the API server, unless somebody else
// has changed the Pod meanwhile. Only the metadata are compared: a whole Pod takes
// a millisecond.
func (c *Controller) patchMetadata(ctx context.Context, pod, changed *corev1.Pod) error {
	before, after := &corev1.Pod{ObjectMeta: pod.ObjectMeta}, &corev1.Pod{ObjectMeta: changed.ObjectMeta}
	patch, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
	if err != nil {
		return fmt.Errorf("cannot compare the metadata of Pod %s: %w", pod.Name, err)
	}
	return c.opts.API.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch))
}

// patchLauncher changes a launcher Pod's metadata in the same way. New records of the launcher
// are written before.
func (c *Controller) patchLauncher(ctx context.Context, n *nodeWork, l *launcherPod, change func(*corev1.Pod) error) error {
	c.writeStaged(ctx, n, l)
	changed := l.pod.DeepCopy()
	if err := change(changed); err != nil {
		return err
	}
	podmeta.ForgetFailures(changed, c.opts.Now())
	if err := c.patchMetadata(ctx, l.pod, changed); err != nil {
		return err
	}
	n.note(changed)
	l.read(changed)
	return nil
}

func putRecord(p *corev1.Pod, b podmeta.Binding) error {
	key, value, err := b.Encode()
	if err != nil {
		return err
	}
	p.Annotations = annotationsOf(p)
	p.Annotations[key] = value
	delete(p.Annotations, podmeta.AnnotationUnboundSince)
	if !slices.Contains(p.Finalizers, podmeta.FinalizerProvider) {
		p.Finalizers = append(p.Finalizers, podmeta.FinalizerProvider)
	}
	return nil
}

func dropRecord(p *corev1.Pod, instance string, now time.Time) {
	p.Annotations = annotationsOf(p)
	delete(p.Annotations, podmeta.AnnotationBindingPrefix+instance)
	if left, damaged := podmeta.ReadBindings(p); len(left)+len(damaged) == 0 {
		p.Annotations[podmeta.AnnotationUnboundSince] = now.UTC().Format(time.RFC3339)
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == podmeta.FinalizerProvider })
	}
}

func (c *Controller) deleteRequester(ctx context.Context, pod *corev1.Pod, step decide.Step) error {
	c.event(pod, step, "Delete")
	err := c.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsConflict(err) {
		return nil // another Pod of its name
	}
	return client.IgnoreNotFound(err)
}

// callLauncher begins a call that the launcher's watch stream tells the outcome of.
func (c *Controller) callLauncher(n *nodeWork, l *launcherPod, id string, do decide.Action, record *podmeta.Binding, wanted form.Form) error {
	api := c.opts.Providers.Provider(l.key())
	if api == nil {
		return fmt.Errorf("cannot ask launcher %s: it is not watched", l.pod.Name)
	}
	switch do {
	case decide.Swap:
		request, key := swapRequest(record, wanted), record.SwapKey()
		n.calls.begin(swapKey(l, record), true, func(ctx context.Context) (uint64, error) {
			result, err := api.SwapOnce(ForRequester(ctx, record.RequesterUID), key, request, nil)
			if err != nil || result.In == nil {
				return 0, answered(err)
			}
			return result.In.Revision, nil
		})
	case decide.CallOff: // one that has begun goes on, to be put to rest when its instance is there
		key := record.SwapKey()
		n.calls.begin(callOffKey(l, record), true, func(ctx context.Context) (uint64, error) {
			err := api.CallOff(ctx, key)
			if launcher.CodeOf(err) == launcherapi.CodeNotFound {
				n.calls.hangUp(swapKey(l, record))
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
func swapRequest(record *podmeta.Binding, wanted form.Form) launcherapi.SwapRequest {
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
	return launcherapi.SwapRequest{GPUUUIDs: record.GPUs, In: in}
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
	ctx, stop := context.WithTimeout(ForRequester(ctx, o.Requester.UID), passLimit)
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

// refused tells an answer that is an error from no answer.
func refused(err error) bool {
	_, ok := errors.AsType[*spi.RefusedError](err)
	return ok
}

// wrote keeps the world up with a write to a requester.
func (w *world) wrote(n *nodeWork, pod *corev1.Pod) {
	n.note(pod)
	w.pods[pod.UID] = pod
	read, problems := podmeta.ReadRequester(pod)
	w.asked[pod.UID] = requester{read, problems}
}

// retryAfter is when to look again after a write that failed.
const retryAfter = 100 * time.Millisecond
