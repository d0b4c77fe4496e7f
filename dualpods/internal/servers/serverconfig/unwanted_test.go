package serverconfig

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestSleepersThatOthersCouldWakeAreWanted(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	configOf := func(name, namespace string) *v1alpha1.InferenceServerConfig {
		return &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.InferenceServerConfigSpec{
			ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Args: []string{"org/llama"}}, LauncherConfigName: "vllm",
		}}
	}
	launcherPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "l", UID: "l", Labels: launcherpool.Labels("vllm"), Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "any/v1", Kind: "LauncherConfig", Name: "vllm", UID: "vllm", Controller: new(true)}},
	}}
	launcherPod.Spec.NodeName = "n"
	launcherPod.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm:1"}}
	launcherConfig := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "vllm"}}
	wanted, problems := form.CheckConfig(configOf("llama", "ns"))
	require.Empty(t, problems)
	on, _ := wanted.On(&launcherPod.Spec)
	id := func(gpu string) string { return form.InstanceID(on, []string{gpu}) }
	views := said{"l": {Instances: map[string]launcherapi.Instance{
		id("0"): {State: "sleeping", GPUUUIDs: []string{"0"}}, id("1"): {State: "awake", GPUUUIDs: []string{"1"}}, id("2"): {State: "sleeping", GPUUUIDs: []string{"2"}},
		"by-hand": {State: "sleeping", GPUUUIDs: []string{"0"}},
	}}}
	in := func(p *corev1.Pod) {
		p.Namespace = "ns"
		p.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}}}}
	}
	other := configOf("other", "ns")
	other.Spec.ModelServerConfig.Args = []string{"org/other"}
	index := func(of func(*corev1.Pod) []string) client.IndexerFunc {
		return func(o client.Object) []string { return of(o.(*corev1.Pod)) }
	}
	edited := configOf("llama", "ns")
	edited.Spec.ModelServerConfig.Args = append(edited.Spec.ModelServerConfig.Args, "--seed=1")
	sameForm := configOf("llama", "ns")
	sameForm.Spec.ModelServerConfig.Labels = map[string]v1alpha1.LabelValue{"of": "mine"}
	for name, tt := range map[string]struct {
		objects []client.Object // with the configuration, unless it is as it was
		want    []string
	}{
		"another edition of it":              {[]client.Object{edited}, []string{id("0"), id("2")}},
		"another edition that runs the same": {[]client.Object{sameForm}, nil},
		"nobody else":                        {nil, []string{id("0"), id("2")}},
		"another model":                      {[]client.Object{other}, []string{id("0"), id("2")}},
		"the same in another namespace":      {[]client.Object{configOf("same", "elsewhere")}, []string{id("0"), id("2")}},
		"the same by another name":           {[]client.Object{configOf("same", "ns")}, nil},
		"a requester of it":                  {[]client.Object{requester("asks", in)}, nil},
		"a requester of it that is ended":    {[]client.Object{requester("asks", in, hasEnded)}, []string{id("0"), id("2")}},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf("llama", "ns")
			objects := append(tt.objects, launcherConfig.DeepCopy(), launcherPod.DeepCopy())
			if !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetName() == config.Name }) {
				objects = append(objects, config)
			}
			api := fake.NewClientBuilder().WithScheme(scheme).
				WithIndex(&corev1.Pod{}, IndexConfig, index(IndexedConfig)).WithIndex(&corev1.Pod{}, launcherpool.IndexConfig, index(launcherpool.IndexedConfig)).
				WithObjects(objects...).Build()
			got, err := New(Options{API: api, Views: views}).Unwanted(t.Context(), config)
			require.NoError(t, err)
			slices.Sort(tt.want)
			assert.Equal(t, tt.want, slices.Sorted(slices.Values(got["l"])))
		})
	}
}
