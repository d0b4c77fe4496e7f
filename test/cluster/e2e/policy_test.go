//go:build cluster

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

func TestOnlyTheControllerWritesRecordsAndStatus(t *testing.T) {
	s := newSite(t)
	s.apply("examples/dual-pods/requesters.yaml")
	requester := s.served("model-a", 1)[0]
	launcher := *s.pod("launcher-node-1")
	record := podmeta.AnnotationBindingPrefix + s.records("launcher-node-1")[0].Instance

	editor := s.editor()
	// change edits the newest version of a Pod.
	change := func(pod corev1.Pod, edit func(annotations map[string]string)) error {
		now := s.pod(pod.Name)
		was := now.DeepCopy()
		edit(now.Annotations)
		return editor.Patch(t.Context(), now, client.MergeFrom(was))
	}
	// changeStatus does so as the kubelet does, which writes the status.
	changeStatus := func(pod corev1.Pod, edit func(*corev1.Pod)) error {
		now := s.pod(pod.Name)
		was := now.DeepCopy()
		edit(now)
		return editor.Status().Patch(t.Context(), now, client.StrategicMergeFrom(was))
	}
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"a record that is made up": {change(launcher, func(a map[string]string) { a[podmeta.AnnotationBindingPrefix+"x"] = "{}" }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationBindingPrefix + "x"},
		"a record that is changed": {change(launcher, func(a map[string]string) { a[record] = "{}" }),
			"only the controller of hotseat or an administrator may write the annotation " + record},
		"a record that is removed": {change(launcher, func(a map[string]string) { delete(a, record) }),
			"only the controller of hotseat or an administrator may remove the annotation " + record},
		"a status that is changed": {change(requester, func(a map[string]string) { a[podmeta.AnnotationStatus] = "{}" }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationStatus},
		"labels that the controller would take for its own": {change(requester, func(a map[string]string) { a[podmeta.AnnotationRelayedLabels] = `["app"]` }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationRelayedLabels},
		"a launcher that is said to be idle": {change(launcher, func(a map[string]string) { a[podmeta.AnnotationUnboundSince] = "2000-01-01T00:00:00Z" }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationUnboundSince},
		"a launcher that is said to be of another template": {change(launcher, func(a map[string]string) { a[podmeta.AnnotationTemplateHash] = "x" }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationTemplateHash},
		"a record that is removed with the status": {changeStatus(launcher, func(p *corev1.Pod) { delete(p.Annotations, record) }),
			"only the controller of hotseat or an administrator may remove the annotation " + record},
		"a status that is changed with that of the Pod": {changeStatus(requester, func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationStatus] = "{}" }),
			"only the controller of hotseat or an administrator may write the annotation " + podmeta.AnnotationStatus},
		"a Pod that is made with a record": {editor.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "forged", Annotations: map[string]string{podmeta.AnnotationBindingPrefix + "x": "{}"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}), "only the controller of hotseat or an administrator may write the annotation"},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err), "%s: %v", name, denied.err)
		require.ErrorContains(t, denied.err, denied.says, name)
	}
	require.NoError(t, change(requester, func(a map[string]string) { a["example.com/note"] = time.Now().String() }), "other annotations are anybody's")
	require.NoError(t, changeStatus(requester, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/noted", Status: corev1.ConditionTrue})
	}), "so is the rest of the status")
	s.answers("model-a")
}

func TestOnlyTheControllerAndAdministratorsLetGoOfAPodOrEndALauncherInUse(t *testing.T) {
	s := newSite(t)
	s.apply("examples/dual-pods/requesters.yaml")
	requester := s.served("model-a", 1)[0].Name
	editor := s.editor()
	node := s.as("system:node:"+cluster.NodeName(1), "system:nodes", "system:authenticated")

	// try makes a change of a Pod that goes no further than admission.
	try := func(who client.Client, pod string, edit func(*corev1.Pod)) error {
		now := s.pod(pod)
		was := now.DeepCopy()
		edit(now)
		return who.Patch(t.Context(), now, client.MergeFrom(was), client.DryRunAll)
	}
	remove := func(who client.Client, pod string) error {
		return who.Delete(t.Context(), s.pod(pod), client.DryRunAll)
	}
	letGo := func(p *corev1.Pod) { p.Finalizers = nil }
	for name, denied := range map[string]struct {
		err  error
		says string
	}{
		"a requester that is let go":       {try(editor, requester, letGo), "may add or remove its finalizers on a Pod"},
		"a launcher that is let go":        {try(editor, "launcher-node-1", letGo), "may add or remove its finalizers on a Pod"},
		"a Pod that serves a Model":        {try(editor, requester, func(p *corev1.Pod) { p.Labels[podmeta.LabelServes] = "x" }), "may write the label hotseat.dev/serves"},
		"a launcher of another config":     {try(editor, "launcher-node-1", func(p *corev1.Pod) { p.Labels[podmeta.LabelLauncherConfig] = "x" }), "may change the labels that make a Pod a launcher"},
		"a launcher of another group":      {try(editor, "launcher-node-1", func(p *corev1.Pod) { p.Labels[podmeta.LabelModelNodeGroup] = "x" }), "may change the labels that make a Pod a launcher"},
		"a launcher that is none any more": {try(editor, "launcher-node-1", func(p *corev1.Pod) { delete(p.Labels, podmeta.LabelComponent) }), "may change the labels that make a Pod a launcher"},
		"a Pod that becomes a launcher": {try(editor, requester, func(p *corev1.Pod) {
			p.Labels[podmeta.LabelComponent], p.Labels[podmeta.LabelLauncherConfig] = podmeta.ComponentLauncher, "simulated"
		}), "may change the labels that make a Pod a launcher"},
		"a Pod that is made with a finalizer": {editor.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "held", Finalizers: []string{podmeta.FinalizerRequester}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}, client.DryRunAll), "may add or remove its finalizers on a Pod"},
		"a Pod that says it is of a Model": {editor.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "stranger", Labels: map[string]string{podmeta.LabelModel: "llama", podmeta.LabelModelEntry: "a"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}, client.DryRunAll), "may write the label hotseat.dev/model,"},
		"a requester that says it is a seat": {try(editor, requester, func(p *corev1.Pod) { p.Labels[podmeta.LabelSeat] = "x" }), "may write the label hotseat.dev/seat,"},
		"a seat's model":                     {try(editor, requester, func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationSeat] = "{}" }), "may write the annotation hotseat.dev/seat-model"},
		"a launcher that is deleted":         {remove(editor, "launcher-node-1"), "may delete a launcher that has requesters, because they would end with it (this one has 1)"},
	} {
		assert.True(t, apierrors.IsInvalid(denied.err) || apierrors.IsForbidden(denied.err), "%s: %v", name, denied.err)
		require.ErrorContains(t, denied.err, denied.says, name)
	}
	for name, err := range map[string]error{
		"other labels are anybody's":             try(editor, "launcher-node-1", func(p *corev1.Pod) { p.Labels["team"] = "x" }),
		"other finalizers are anybody's":         try(editor, requester, func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.com/x") }),
		"a requester is deleted by its user":     remove(editor, requester),
		"an administrator lets go":               try(s.api, requester, letGo),
		"an administrator deletes":               remove(s.api, "launcher-node-1"),
		"RBAC says who is one":                   remove(s.withRole(s.ns+"-admin", "cluster-admin"), "launcher-node-1"),
		"the kubelet deletes":                    remove(node, "launcher-node-1"),
		"the scheduler deletes what it preempts": remove(s.as("system:kube-scheduler", "system:authenticated"), "launcher-node-1"),
		"who may evict does, as a drain does":    editor.SubResource("eviction").Create(t.Context(), s.pod("launcher-node-1"), &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}),
	} {
		require.NoError(t, err, name)
	}
	for _, controller := range []string{"generic-garbage-collector", "pod-garbage-collector", "namespace-controller"} {
		require.NoError(t, remove(s.kubernetes(controller), "launcher-node-1"), "%s deletes", controller)
	}
	daemonSets := s.kubernetes("daemon-set-controller")
	require.ErrorContains(t, remove(daemonSets, "launcher-node-1"), "may delete a launcher that has requesters", "it waits until they are gone")
	require.NoError(t, remove(daemonSets, requester), "other Pods are its own matter")
	s.scale("model-a", 0)
	s.gone("model-a")
	s.eventually("a launcher that nobody is bound to is anybody's", func() bool { return remove(editor, "launcher-node-1") == nil })
	require.NoError(t, remove(daemonSets, "launcher-node-1"))
}

func TestOnlyTheControllerAndAdministratorsChangeADaemonSetOfLaunchers(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	var set appsv1.DaemonSet
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "simulated-launcher"}, &set))
	changed := set.DeepCopy()
	changed.Spec.Template.Labels["team"] = "x"
	patch := client.MergeFrom(&set)
	editor := s.editor()
	collector := s.kubernetes("generic-garbage-collector")
	for name, err := range map[string]error{
		"deleted": editor.Delete(t.Context(), set.DeepCopy(), client.DryRunAll),
		"changed": editor.Patch(t.Context(), changed.DeepCopy(), patch, client.DryRunAll),
	} {
		require.ErrorContains(t, err, "only the controller of hotseat or an administrator may change or delete a DaemonSet of launchers: change or delete its LauncherConfig", name)
	}
	require.NoError(t, s.api.Delete(t.Context(), set.DeepCopy(), client.DryRunAll), "an administrator deletes")
	require.NoError(t, collector.Delete(t.Context(), set.DeepCopy(), client.DryRunAll), "it goes with its LauncherConfig")
}

// as speaks to the API server as somebody.
func (s *site) as(user string, groups ...string) client.Client {
	s.t.Helper()
	config := rest.CopyConfig(s.rest)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{Scheme: s.api.Scheme(), Mapper: s.api.RESTMapper()})
	require.NoError(s.t, err)
	return c
}

// editor is somebody who may do everything to every object, and who is no administrator
// to the policies.
func (s *site) editor() client.Client {
	s.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-editor"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
		}},
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), role))
	s.t.Cleanup(func() { assert.NoError(s.t, s.api.Delete(context.Background(), role)) })
	return s.withRole(role.Name, role.Name)
}

// withRole is a user who has a ClusterRole in all namespaces.
func (s *site) withRole(user, role string) client.Client {
	s.t.Helper()
	all := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), all))
	s.t.Cleanup(func() { assert.NoError(s.t, s.api.Delete(context.Background(), all)) })
	who := s.as(user, "system:authenticated")
	s.eventually("the API server knows the rights of "+user, func() bool {
		return who.List(s.t.Context(), &corev1.PodList{}, client.InNamespace(s.ns)) == nil
	})
	return who
}
