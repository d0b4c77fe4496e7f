//go:build cluster

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

// strangerLauncher makes a Pod that runs a launcher's program, and that has the labels of a
// launcher, but that nothing of hotseat owns.
func (s *site) strangerLauncher(name string) {
	s.t.Helper()
	pod := s.launcherPod(name)
	pod.Labels[podmeta.LabelManagedBy] = podmeta.ManagedBy
	require.NoError(s.t, s.api.Create(s.t.Context(), pod)) // as an administrator, whom admission lets through
	s.ready("pod/" + name)
}

func TestAPodThatLooksLikeALauncherHoldsNobodyUp(t *testing.T) {
	other := newBareSite(t)
	other.strangerLauncher("stranger")
	stolen := map[string]string{} // apps by GPU
	for n, gpu := range other.cluster.UUIDs(1) {
		stolen[gpu] = fmt.Sprintf("stolen-%d", n)
		options := "org/" + stolen[gpu] + " --gpu-memory-utilization=0.4"
		_, err := other.launcher("stranger").Create(t.Context(), stolen[gpu], launcherapi.InstanceSpec{
			Options: &options, GPUUUIDs: []string{gpu}, Annotations: map[string]string{podmeta.AnnotationMadeFor: other.ns + "/nobody"},
		})
		require.NoError(t, err)
		other.instance("stranger", stolen[gpu], "awake")
	}

	s := newSite(t)
	s.strangerLauncher("mine-too")
	s.onOneGPU()
	s.start(server{app: "served", node: 1, args: []string{"--gpu-memory-utilization=0.4"}})
	pod := s.served("served", 1)[0]
	model, err := s.ask(pod.Status.PodIP+":8000", "org/served")
	require.NoError(t, err)
	assert.Equal(t, "org/served", model)
	s.instance("launcher-node-1", "served", "awake")
	for _, app := range stolen {
		other.instance("stranger", app, "awake") // the controller touches nothing of a stranger's
	}
	for _, pod := range []*corev1.Pod{other.pod("stranger"), s.pod("mine-too")} {
		assert.Empty(t, pod.Finalizers, pod.Name)
		assert.NotContains(t, strings.Join(slices.Collect(maps.Keys(pod.Annotations)), " "), podmeta.AnnotationBindingPrefix, pod.Name)
	}
	assert.Empty(t, s.instances(s.launcher("mine-too")))
}

func TestOnlyTheControllerMakesPodsWithTheLabelsOfALauncher(t *testing.T) {
	s := newBareSite(t)
	editor := s.editor()
	marks := map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "simulated", "app": "x"}
	nowhere := map[string]string{corev1.LabelHostname: cluster.NodeName(9)}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}, NodeSelector: nowhere}
	pod := func(kind string) *corev1.Pod {
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "marked", Labels: marks}, Spec: spec}
		if kind != "" {
			made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "x", Controller: new(true)}}
		}
		return made
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "marked"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: spec},
	}}
	require.NoError(t, editor.Create(t.Context(), set), "other DaemonSets are anybody's")
	marked := set.DeepCopy()
	marked.Spec.Template.Labels = marks
	fresh := marked.DeepCopy()
	fresh.Name, fresh.ResourceVersion, fresh.UID = "marked-too", "", ""
	as := func(user string, groups ...string) client.Client {
		return s.as(user, append(groups, "system:authenticated")...)
	}
	daemons := as("system:serviceaccount:kube-system:daemon-set-controller", "system:serviceaccounts", "system:serviceaccounts:kube-system")
	replicas := as("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts", "system:serviceaccounts:kube-system")
	const says = "only the controller of hotseat or an administrator may make a Pod with the labels of a launcher"
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"a Pod":                       {editor.Create(t.Context(), pod(""), client.DryRunAll), says},
		"a Pod with a made-up owner":  {editor.Create(t.Context(), pod("DaemonSet"), client.DryRunAll), says},
		"a Pod of a Deployment":       {replicas.Create(t.Context(), pod("ReplicaSet"), client.DryRunAll), says},
		"a DaemonSet":                 {editor.Create(t.Context(), fresh, client.DryRunAll), "may make a DaemonSet whose Pods have the labels of a launcher"},
		"a DaemonSet that is changed": {editor.Patch(t.Context(), marked.DeepCopy(), client.MergeFrom(set), client.DryRunAll), "may make a DaemonSet whose Pods have the labels of a launcher"},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err) || apierrors.IsForbidden(denied.err), "%s: %v", name, denied.err)
		require.ErrorContains(t, denied.err, denied.says, name)
	}
	require.NoError(t, daemons.Create(t.Context(), pod("DaemonSet"), client.DryRunAll), "Kubernetes makes those of the controller's DaemonSets")
	require.NoError(t, s.withRole(s.ns+"-admin", "cluster-admin").Create(t.Context(), pod(""), client.DryRunAll), "RBAC says who is an administrator")
}
