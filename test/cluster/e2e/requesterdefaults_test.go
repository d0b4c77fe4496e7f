//go:build cluster

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// hasPolicyForRequesters reports whether the API server has policies that change what is
// created, as Kubernetes has from 1.36 on. If it has none, the chart must have installed none.
func (s *site) hasPolicyForRequesters() bool {
	s.t.Helper()
	_, err := s.api.RESTMapper().RESTMapping(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}, "v1")
	if meta.IsNoMatchError(err) {
		return false
	}
	require.NoError(s.t, err)
	return true
}

// mutatingPolicies are the kinds of such policies, for kubectl.
func (s *site) mutatingPolicies() string {
	if !s.hasPolicyForRequesters() {
		return ""
	}
	return ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
}

// needPolicyForRequesters skips the test on releases of Kubernetes without such policies.
func (s *site) needPolicyForRequesters() {
	s.t.Helper()
	if !s.hasPolicyForRequesters() {
		s.t.Skip("NOT TESTED: THIS RELEASE OF KUBERNETES HAS NO MutatingAdmissionPolicy IN v1")
	}
	s.policyForRequesters(true)
}

// withoutPolicyForRequesters has a release without that policy until the test ends, as it is on
// earlier releases of Kubernetes. more are further values of the chart.
func (s *site) withoutPolicyForRequesters(more ...string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*patience.Wait())
		defer stop()
		assert.NoError(s.t, s.install(ctx), "the policy is there again")
	})
	require.NoError(s.t, s.install(s.t.Context(), append(more, "requesterDefaults.enabled=false")...))
	if s.hasPolicyForRequesters() {
		s.policyForRequesters(false)
	}
}

// policyForRequesters waits until the API server adds the finalizer to new requesters, or until it
// does not.
func (s *site) policyForRequesters(adds bool) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the policy has an effect: %t", adds), func() bool {
		pod := s.waitsForever("tried")
		return s.api.Create(s.t.Context(), pod, client.DryRunAll) == nil && podmeta.Held(pod) == adds
	})
}

// waitsForever is a requester that never gets a node.
func (s *site) waitsForever(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name, Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"example.com/nowhere": "x"},
			Containers: []corev1.Container{{
				Name: podmeta.ServingContainer, Image: "hotseat.local/requester:dev",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}},
			}},
		},
	}
}

// TestAnAnnotationAndAGPUMakeARequester applies the shortest example, as a user who may not
// write finalizers.
func TestAnAnnotationAndAGPUMakeARequester(t *testing.T) {
	s := newPool(t, nil)
	s.needPolicyForRequesters()
	s.apply("examples/dual-pods/short.yaml")
	s.scale("model-e", 1)
	s.eventually("its Pod is there", func() bool { return len(s.pods("model-e")) == 1 })
	created := s.pods("model-e")[0]
	assert.True(t, podmeta.Held(&created), "it has the finalizer as soon as it can be read")
	read, problems := podmeta.ReadRequester(&created)
	assert.Empty(t, problems)
	assert.True(t, read.TLS, "it takes orders from the controller alone")
	assert.NotNil(t, created.Spec.Containers[0].ReadinessProbe)
	pod := s.served("model-e", 1)[0]
	assert.Equal(t, created.UID, pod.UID)
	s.answers("model-e")
	launcher := s.poolPods()[pod.Spec.NodeName].Name
	assert.Equal(t, "org/model-e", s.instance(launcher, "model-e", "awake").Model)
	s.scale("model-e", 0)
	s.gone("model-e")
	s.instance(launcher, "model-e", "sleeping")

	// A user who is no administrator creates requesters, and nothing else with a finalizer.
	editor := s.editor()
	mine := s.waitsForever("mine")
	require.NoError(t, editor.Create(t.Context(), mine, client.DryRunAll))
	assert.True(t, podmeta.Held(mine))
	both := s.waitsForever("both")
	both.Finalizers = []string{podmeta.FinalizerProvider}
	plain := s.waitsForever("plain")
	plain.Annotations, plain.Finalizers = nil, []string{podmeta.FinalizerRequester}
	for _, pod := range []*corev1.Pod{both, plain} {
		require.ErrorContains(t, editor.Create(t.Context(), pod, client.DryRunAll), "may add or remove its finalizers on a Pod", pod.Name)
	}
}

// TestRequesterWithoutANodeIsReleasedWhenItIsDeleted deletes requesters that wait for a node: one
// that the scheduler cannot place, and one that waits for its placement.
func TestRequesterWithoutANodeIsReleasedWhenItIsDeleted(t *testing.T) {
	s := newSite(t)
	s.needPolicyForRequesters()
	pods := []*corev1.Pod{s.waitsForever("unplaced"), s.waitsForever("gated")}
	pods[1].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/never"}, {Name: podmeta.SchedulingGate}}
	for _, pod := range pods {
		require.NoError(t, s.api.Create(t.Context(), pod))
		require.True(t, podmeta.Held(pod))
		s.delete(pod.Name)
	}
	for _, pod := range pods {
		s.eventually(pod.Name+" is gone", func() bool {
			return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
		})
	}
}

// TestUninstallFreesPodsWithoutANode creates requesters before, during and after an
// uninstallation.
func TestUninstallFreesPodsWithoutANode(t *testing.T) {
	s := newBareSite(t)
	s.needPolicyForRequesters()
	require.NoError(t, s.api.Create(t.Context(), s.waitsForever("before")))
	require.True(t, podmeta.Held(s.pod("before")))

	ctx, stop := context.WithCancel(t.Context())
	var creating sync.WaitGroup
	held := 0
	creating.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			pod := s.waitsForever(fmt.Sprintf("meanwhile-%d", n))
			if err := s.api.Create(ctx, pod); err == nil && podmeta.Held(pod) {
				held++
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	func() {
		defer func() { stop(); creating.Wait() }()
		s.uninstalled()
	}()
	assert.Positive(t, held, "some were created before the API server had heard of the deletion")
	s.nothingIsHeld()
	s.policyForRequesters(false)
	s.delete("before")
	s.eventually("nothing keeps it", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "before"}, &corev1.Pod{}))
	})
}
