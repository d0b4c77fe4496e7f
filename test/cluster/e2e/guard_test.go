//go:build cluster

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// kubernetes is a controller of Kubernetes itself.
func (s *site) kubernetes(controller string) client.Client {
	return s.as("system:serviceaccount:kube-system:"+controller, "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
}

// gone is an owner that is not there: the garbage collector deletes what has no other.
var gone = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}

func TestNobodyEndsALauncherInUseByAChangeOfItsPod(t *testing.T) {
	s := newSite(t)
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	const launcher = "launcher-node-1"
	editor := s.editor()
	node := s.as("system:node:"+cluster.NodeName(1), "system:nodes", "system:authenticated")
	try := func(who client.Client, edit func(*corev1.Pod)) error {
		now := s.pod(launcher)
		was := now.DeepCopy()
		edit(now)
		return who.Patch(t.Context(), now, client.MergeFrom(was), client.DryRunAll)
	}
	status := func(who client.Client, edit func(*corev1.PodStatus)) error {
		now := s.pod(launcher)
		was := now.DeepCopy()
		edit(&now.Status)
		return who.Status().Patch(t.Context(), now, client.MergeFrom(was), client.DryRunAll)
	}
	image := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "another" }
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }
	owned := func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, gone) }
	unowned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	failed := func(st *corev1.PodStatus) { st.Phase = corev1.PodFailed }
	moved := func(st *corev1.PodStatus) { st.PodIP, st.PodIPs = "10.9.9.9", []corev1.PodIP{{IP: "10.9.9.9"}} }
	stopped := func(st *corev1.PodStatus) {
		st.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "x"}}
	}
	noted := func(st *corev1.PodStatus) {
		st.Conditions = append(st.Conditions, corev1.PodCondition{Type: "example.com/noted", Status: corev1.ConditionTrue})
	}
	const spec, owners, ended = "only an administrator may change the spec of a launcher that has requesters, because they would end with its container (this one has 1)",
		"only Kubernetes and an administrator may change the owners of a launcher", "only the kubelet and an administrator may say that a launcher with requesters has ended"
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"another image":                 {try(editor, image), spec},
		"a deadline":                    {try(editor, deadline), spec},
		"an owner that is not there":    {try(editor, owned), owners},
		"no owner":                      {try(editor, unowned), owners},
		"it is said to have ended":      {status(editor, failed), ended},
		"it is said to be elsewhere":    {status(editor, moved), ended},
		"its container is said to wait": {status(editor, stopped), ended},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err) || apierrors.IsForbidden(denied.err), "%s: %v", name, denied.err)
		assert.ErrorContains(t, denied.err, denied.says, name)
	}
	for name, err := range map[string]error{
		"the rest of the status is anybody's":        status(editor, noted),
		"the kubelet says that it has ended":         status(node, failed),
		"an administrator changes the image":         try(s.api, image),
		"an administrator changes the owners":        try(s.api, owned),
		"a controller of Kubernetes releases it":     try(s.kubernetes("daemon-set-controller"), unowned),
		"the garbage collector releases it likewise": try(s.kubernetes("generic-garbage-collector"), unowned),
	} {
		require.NoError(t, err, name)
	}
	s.scale("model-a", 0)
	s.gone("model-a")
	s.eventually("the image of a launcher without requesters is anybody's", func() bool { return try(editor, image) == nil })
	require.ErrorContains(t, try(editor, owned), owners, "its owners are not")
}

func TestNobodyWritesRecordsOrLabelsByABinding(t *testing.T) {
	s := newBareSite(t)
	editor := s.editor()
	waiting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "waiting"}, Spec: corev1.PodSpec{
		SchedulerName: "nobody", Containers: []corev1.Container{{Name: "x", Image: "x"}},
	}}
	require.NoError(t, editor.Create(t.Context(), waiting))
	bind := func(annotations, labels map[string]string) error {
		return editor.SubResource("binding").Create(t.Context(), waiting.DeepCopy(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: waiting.Name, Annotations: annotations, Labels: labels},
			Target:     corev1.ObjectReference{Kind: "Node", Name: cluster.NodeName(2)},
		}, client.DryRunAll)
	}
	for key, value := range map[string]string{
		podmeta.AnnotationBindingPrefix + "x": "{}", podmeta.AnnotationStatus: "{}", podmeta.AnnotationRelayedLabels: "[]",
		podmeta.AnnotationUnboundSince: "2000-01-01T00:00:00Z", podmeta.AnnotationTemplateHash: "x",
	} {
		require.ErrorContains(t, bind(map[string]string{key: value}, nil), "only the controller of hotseat or an administrator may write the annotation "+key)
	}
	for _, key := range []string{podmeta.LabelLauncherConfig, podmeta.LabelModelNodeGroup, podmeta.LabelComponent, podmeta.LabelManagedBy} {
		require.ErrorContains(t, bind(nil, map[string]string{key: "launcher"}), "only an administrator may bind a Pod to a node with the label "+key)
	}
	require.NoError(t, bind(map[string]string{"example.com/note": "x"}, map[string]string{"team": "x"}), "other annotations and labels are anybody's")
	require.NoError(t, bind(nil, nil))
}

func TestNobodyDeletesALauncherConfigWhoseLaunchersHaveRequesters(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	editor := s.editor()
	remove := func(who client.Client) error { return who.Delete(t.Context(), s.config(), client.DryRunAll) }
	require.NoError(t, remove(editor), "nobody is bound")
	s.deploy(server{app: "kept", node: 1}, 1)
	s.served("kept", 1)
	s.configTold("the status counts the requester", func(st v1alpha1.LauncherConfigStatus) bool { return st.Requesters == 1 })
	change := func(edit func(*v1alpha1.LauncherConfig)) (err error) {
		s.eventually("the API server answers for the newest version", func() bool { // the controller writes the status meanwhile
			now := s.config()
			was := now.DeepCopy()
			edit(now)
			err = editor.Patch(t.Context(), now, client.MergeFrom(was), client.DryRunAll)
			return !apierrors.IsConflict(err)
		})
		return err
	}
	owned := func(c *v1alpha1.LauncherConfig) { c.OwnerReferences = append(c.OwnerReferences, gone) }
	now := s.config()
	forged := now.DeepCopy()
	forged.Status.Requesters = 0
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"deleted":             {remove(editor), "only an administrator may delete a LauncherConfig whose launchers have requesters, because they would end with it (1 are bound): delete the requesters first"},
		"given another owner": {change(owned), "only an administrator may change the owners of a LauncherConfig whose launchers have requesters"},
		"said to have none":   {editor.Status().Patch(t.Context(), forged, client.MergeFrom(now), client.DryRunAll), "may write how many requesters the launchers of a LauncherConfig have"},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err) || apierrors.IsForbidden(denied.err), "%s: %v", name, denied.err)
		require.ErrorContains(t, denied.err, denied.says, name)
	}
	require.NoError(t, change(func(c *v1alpha1.LauncherConfig) { c.Labels = map[string]string{"team": "x"} }), "it is edited as before")
	require.NoError(t, remove(s.api), "an administrator deletes")
	require.NoError(t, remove(s.withRole(s.ns+"-admin", "cluster-admin")), "RBAC says who is one")
	require.NoError(t, remove(s.kubernetes("namespace-controller")), "it goes with its namespace")
	s.scale("kept", 0)
	s.gone("kept")
	s.eventually("whoever may delete LauncherConfigs deletes it", func() bool {
		err := remove(editor)
		return err == nil || !strings.Contains(err.Error(), "have requesters") && !apierrors.IsConflict(err)
	})
	require.NoError(t, remove(editor))
}
