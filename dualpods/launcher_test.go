package dualpods_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func owner(kind, name string, uid types.UID) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "any/v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}
}

// made returns a Pod with the labels of a launcher of LauncherConfig vllm.
func made(by *metav1.OwnerReference, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", Labels: map[string]string{
		podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm", podmeta.LabelManagedBy: podmeta.ManagedBy,
	}}}
	if by != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*by}
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// poolAPI has a LauncherConfig and its DaemonSet, and a DaemonSet that somebody else made
// for a LauncherConfig that has none.
func poolAPI(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	config := func(name string, uid types.UID) *v1alpha1.LauncherConfig {
		return &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
	}
	set := func(name string, uid, by types.UID) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, OwnerReferences: []metav1.OwnerReference{*owner("LauncherConfig", "any", by)}}}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(config("vllm", "config"), set("vllm-launcher", "set", "config"), config("bare", "bare"), set("bare-launcher", "theirs", "nobody"))
}

func TestLauncherIsUnknownWhileItsOwnerCannotBeRead(t *testing.T) {
	for _, unreadable := range []string{"*v1alpha1.LauncherConfig", "*v1.DaemonSet"} {
		api := poolAPI(t).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				if fmt.Sprintf("%T", into) == unreadable {
					return errors.New("no cache")
				}
				return api.Get(ctx, key, into, opts...)
			},
		}).Build()
		_, _, err := dualpods.NewLaunchers(api).KindOf(t.Context(), made(owner("DaemonSet", "vllm-launcher", "set")))
		assert.ErrorContains(t, err, "no cache", unreadable)
	}
}

func TestRecordOfARequesterIsFoundOnALauncherOfItsNode(t *testing.T) {
	requester := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	key, record, err := podmeta.Binding{Instance: "i", RequesterUID: "r", Namespace: "ns", Name: "r", GPUs: []string{"GPU-0"}, ServingPort: 8000, SpecHash: "h", Attempt: 1, Since: time.Unix(1, 0)}.Encode()
	require.NoError(t, err)
	bound := func(name, node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Name, p.Spec.NodeName, p.Annotations = name, node, map[string]string{key: record}
		}
	}
	find := func(pods ...client.Object) string {
		api := poolAPI(t).WithIndex(&corev1.Pod{}, dualpods.IndexNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).WithObjects(pods...).Build()
		launcher, found, err := dualpods.NewLaunchers(api).RecordOf(t.Context(), requester)
		require.NoError(t, err)
		if launcher == nil {
			return ""
		}
		assert.Equal(t, "i", found.Instance)
		return launcher.Name
	}
	ofPool := owner("LauncherConfig", "vllm", "config")
	assert.Equal(t, "l", find(made(ofPool, bound("l", "node-1"))))
	assert.Empty(t, find(made(ofPool, bound("l", "node-2"))), "on another node")
	assert.Empty(t, find(made(nil, bound("stranger", "node-1"))), "a Pod that only looks like a launcher")
	assert.Empty(t, find(made(ofPool, bound("l", "node-1"), func(p *corev1.Pod) { p.Annotations = nil })), "nothing is bound")
	requester.UID = "another"
	assert.Empty(t, find(made(ofPool, bound("l", "node-1"))), "the record is of an earlier Pod of the name")
}
