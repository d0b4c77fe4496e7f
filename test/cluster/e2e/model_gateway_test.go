//go:build cluster

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// withPool is a Model whose entry a serves, and whose entry b is never ready.
const withPool = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  minReplicas: 1
  scaleDownDelaySeconds: 1
  gateway: {inferencePool: {endpointPickerRef: {name: picker, port: {number: 9002}}}}
specs:
- {name: a, args: [--gpu-memory-utilization=0.4]}
- {name: b, args: [--gpu-memory-utilization=0.4, --sim-load-time=10m]}
`

// pools returns a client for InferencePools.
func (s *site) pools() client.Client {
	s.t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(s.t, inference.Install(scheme))
	api, err := client.New(s.rest, client.Options{Scheme: scheme})
	require.NoError(s.t, err)
	return api
}

// definePools has the cluster know InferencePools while the test runs, by the CRD of their module.
func (s *site) definePools() {
	s.t.Helper()
	s.define("sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml")
}

// define has the cluster know a CRD of a module while the test runs.
func (s *site) define(module, path string) {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(s.t, err)
	file := filepath.Join(strings.TrimSpace(string(out)), path)
	s.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		_, err := s.cluster.Kubectl(ctx, nil, "delete", "--ignore-not-found", "-f", file)
		assert.NoError(s.t, err)
	})
	require.NoError(s.t, s.applyFile(s.t.Context(), "", file))
	s.eventually("the cluster knows the kind", func() bool {
		return s.kubectl("get", "-f", file, `-o=jsonpath={.status.conditions[?(@.type=="Established")].status}`) == "True"
	})
}

// toldOfPool waits until a Model says this of its InferencePool; empty: nothing.
func (s *site) toldOfPool(model, reason string) {
	s.t.Helper()
	s.eventually(model+" says of its InferencePool: "+reason, func() bool {
		c := meta.FindStatusCondition(s.model(model).Status.Conditions, v1alpha1.ConditionInferencePool)
		return c == nil && reason == "" || c != nil && c.Reason == reason
	})
}

func TestInferencePoolOfAModelSelectsWhatServes(t *testing.T) {
	s := newPool(t, nil)
	s.declare(withPool)
	s.toldOfPool("llama", v1alpha1.ReasonNoInferencePool)
	s.serves("llama", "a (1)")
	s.definePools()
	api := s.pools()
	pool := func() (p inference.InferencePool) {
		require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "llama"}, &p))
		return p
	}
	selected := func() (names []string) {
		selector := labels.Set{}
		for k, v := range pool().Spec.Selector.MatchLabels {
			selector[string(k)] = string(v)
		}
		var pods corev1.PodList
		require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels(selector)))
		for _, p := range pods.Items {
			assert.Equal(t, "Serving", string(podmeta.ReadStatus(&p).State), "%s is selected, and does not serve", p.Name) // the kubelet says later that it is ready
			names = append(names, p.Labels[podmeta.LabelModelEntry])
		}
		return names
	}
	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"gateway": {"inferencePool": {"endpointPickerRef": {"name": "other"}}}}}`) // the controller would look by itself after 30 s
	s.toldOfPool("llama", v1alpha1.ReasonPoolKept)
	assert.Equal(t, inference.ObjectName("other"), pool().Spec.EndpointPickerRef.Name)
	assert.Equal(t, []inference.Port{{Number: 8000}}, pool().Spec.TargetPorts)
	assert.Len(t, s.modelPods("llama"), 2)
	assert.Equal(t, []string{"a"}, selected())

	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"minReplicas": 0, "gateway": {"inferencePool": {"endpointPickerRef": {"name": "third"}}}}}`)
	s.eventually("the edited picker is in the InferencePool", func() bool { return pool().Spec.EndpointPickerRef.Name == "third" })
	s.eventually("at zero nothing is selected", func() bool { return len(selected()) == 0 })
	s.answersFrom("llama", "a (1)")
	assert.Equal(t, []string{"a"}, selected())

	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"gateway": null}}`)
	s.toldOfPool("llama", "")
	assert.True(t, apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "llama"}, &inference.InferencePool{})))
	theirs := &inference.InferencePool{}
	theirs.Namespace, theirs.Name = s.ns, "llama"
	theirs.Spec.Selector.MatchLabels = map[inference.LabelKey]inference.LabelValue{"of": "others"}
	theirs.Spec.TargetPorts = []inference.Port{{Number: 9}}
	require.NoError(t, api.Create(t.Context(), theirs))
	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"gateway": {"inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}}}}}`)
	s.toldOfPool("llama", v1alpha1.ReasonNameTaken)
	assert.Equal(t, theirs.ResourceVersion, pool().ResourceVersion)
}

func TestHTTPRouteOfTheExampleLeadsToTheFrontDoor(t *testing.T) {
	s := newBareSite(t)
	s.define("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	require.NoError(t, s.applyFile(t.Context(), "", root("examples/models/httproute.yaml")))
	scheme := runtime.NewScheme()
	require.NoError(t, gateway.Install(scheme))
	api, err := client.New(s.rest, client.Options{Scheme: scheme})
	require.NoError(t, err)
	var route gateway.HTTPRoute
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "models"}, &route))
	require.Len(t, route.Spec.Rules, 1)
	require.Len(t, route.Spec.Rules[0].BackendRefs, 1)
	to := route.Spec.Rules[0].BackendRefs[0]
	var service corev1.Service
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: system, Name: string(to.Name)}, &service))
	assert.True(t, slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == *to.Port && p.Name == "http" }), "%v", service.Spec.Ports)

	route.ResourceVersion, route.Name = "", "wrong"
	route.Spec.Rules[0].BackendRefs[0].Port = nil
	assert.ErrorContains(t, api.Create(t.Context(), &route), "Must have port for Service reference", "the rules of the CRD hold")
}
