package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

// patchRequester changes a requester's metadata by one write, which is refused
// when somebody else has changed the Pod meanwhile.
func (c *Controller) patchRequester(ctx context.Context, n *nodeWork, w *world, pod *corev1.Pod, change func(*corev1.Pod)) error {
	changed := pod.DeepCopy()
	change(changed)
	if err := c.patchMetadata(ctx, pod, changed); err != nil {
		return err
	}
	if known, ok := n.forms[pod.UID]; ok && known.version == pod.ResourceVersion { // what the controller writes changes no form
		known.version, known.from = changed.ResourceVersion, formSource(changed)
		n.forms[pod.UID] = known
	}
	w.wrote(n, changed)
	return nil
}

// wrote keeps the world up with a write to a requester.
func (w *world) wrote(n *nodeWork, pod *corev1.Pod) {
	n.note(pod)
	w.pods[pod.UID] = pod
	read, problems := podmeta.ReadRequester(pod)
	w.asked[pod.UID] = requester{read, problems}
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

// ofThisPod is a patch that the API server refuses of another Pod of the same name.
// A resource version would be too much: the kubelet writes the status as well.
func ofThisPod(pod *corev1.Pod, patch client.Patch, changed *corev1.Pod) (client.Patch, error) {
	data, err := patch.Data(changed)
	if err != nil {
		return nil, fmt.Errorf("cannot compare the status of Pod %s: %w", pod.Name, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("cannot read what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	fields["metadata"] = json.RawMessage(fmt.Sprintf(`{"uid":%q}`, pod.UID))
	if data, err = json.Marshal(fields); err != nil {
		return nil, fmt.Errorf("cannot write what is to change in the status of Pod %s: %w", pod.Name, err)
	}
	return client.RawPatch(patch.Type(), data), nil
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

// annotationsOf is a copy that can be written to.
func annotationsOf(pod *corev1.Pod) map[string]string {
	if pod.Annotations == nil {
		return map[string]string{}
	}
	return maps.Clone(pod.Annotations)
}
