package launcherpool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// defaultRequests are what a launcher requests of what its template says nothing about. They
// are small, so that a launcher fits on each node: what engines hold differs by a factor of
// a hundred, and only the template can say it. Without a request the launcher would be
// BestEffort: it would get no processor time beside others, and its memory would go first.
var defaultRequests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}

// protect gives launchers the default requests and the PriorityClass, where the template
// says neither. The kubelet evicts Pods that use more than they request in the order of
// their priority
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction).
func (w *templateBuilder) protect(priorityClass string) {
	if w.pod.PriorityClassName == "" && w.pod.Priority == nil {
		w.pod.PriorityClassName = priorityClass
	}
	if w.pod.Resources != nil {
		return // the template says what the whole Pod requests
	}
	for name, request := range defaultRequests {
		_, requested := w.main.Resources.Requests[name]
		_, limited := w.main.Resources.Limits[name] // a limit is a request, too
		if requested || limited {
			continue
		}
		if w.main.Resources.Requests == nil {
			w.main.Resources.Requests = corev1.ResourceList{}
		}
		w.main.Resources.Requests[name] = request
	}
}

// priority is the PriorityClass of the launchers of a LauncherConfig.
type priority struct {
	class  string // empty: none
	exists bool
	value  int32
}

// problems returns a problem if the class does not exist: the API server would refuse each
// launcher.
func (is priority) problems() []podmeta.Problem {
	if is.class == "" || is.exists {
		return nil
	}
	return []podmeta.Problem{{
		Kind: podmeta.Invalid, Field: fieldTemplate + ".spec.priorityClassName",
		Message: fmt.Sprintf("there is no PriorityClass %s: create it, or name another one", is.class),
	}}
}

// defaultClass returns the PriorityClass of launchers whose template names none. It is empty
// if that class does not exist: the API server refuses a Pod that names a missing class.
func (p *Pool) defaultClass(ctx context.Context) (string, error) {
	is, err := p.readPriority(ctx, p.opts.PriorityClass)
	if !is.exists {
		return "", err
	}
	return is.class, nil
}

// priorityOf returns the priority of the launchers of a template.
func (p *Pool) priorityOf(ctx context.Context, template *corev1.PodTemplateSpec) (priority, error) {
	return p.readPriority(ctx, template.Spec.PriorityClassName)
}

func (p *Pool) readPriority(ctx context.Context, class string) (priority, error) {
	is := priority{class: class}
	if class == "" {
		return is, nil
	}
	var found schedulingv1.PriorityClass
	err := p.opts.API.Get(ctx, client.ObjectKey{Name: class}, &found)
	if apierrors.IsNotFound(err) {
		return is, nil
	}
	if err != nil {
		return is, fmt.Errorf("cannot read PriorityClass %s: %w", class, err)
	}
	is.exists, is.value = true, found.Value
	return is, nil
}

// protectedCondition says whether the kubelet evicts launchers later than ordinary Pods when
// their node runs short of memory. All that sleeps in a launcher ends with it.
func protectedCondition(f *observation) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProtectedFromEviction, Status: metav1.ConditionFalse, ObservedGeneration: f.config.Generation}
	const first = "a node that runs short of memory evicts launchers, with all that sleeps in them, as soon as ordinary Pods: "
	switch p := f.priority; {
	case len(f.problems) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonMalformedTemplate, "the condition Accepted says what to correct"
	case p.class == "":
		c.Reason, c.Message = v1alpha1.ReasonNoPriority, first+"name a PriorityClass in spec.podTemplate.spec.priorityClassName, or let the chart create one (launcherPriority.create)"
	case p.value <= 0:
		c.Reason, c.Message = v1alpha1.ReasonNoPriority, fmt.Sprintf("%sthe priority of PriorityClass %s is %d: name one with a priority above 0 in spec.podTemplate.spec.priorityClassName", first, p.class, p.value)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPrioritized
		c.Message = dualpods.Truncate(fmt.Sprintf("PriorityClass %s has priority %d", p.class, p.value), 1000)
	}
	return c
}
