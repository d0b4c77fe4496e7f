//go:build cluster && clusterlong

package e2e

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// onlyLooksAt has the chart installed for one namespace until the test's end.
func (s *site) onlyLooksAt(namespace string) {
	s.t.Helper()
	s.uninstalled()
	s.t.Cleanup(func() { // before it is installed for all: a controller that still runs may do less than it does
		_, err := s.cluster.Helm(context.Background(), "uninstall", "hotseat", "--namespace", system, "--ignore-not-found", "--wait", "--timeout", patience.Wait().String())
		assert.NoError(s.t, err)
	})
	require.NoError(s.t, s.install(s.t.Context(), "watchNamespace="+namespace))
}

func TestAReleaseForOneNamespaceKeepsModelsOnClaimsThereAndLeavesTheRestAlone(t *testing.T) {
	const token = "hf_aTokenThatNobodyIsToSee"
	elsewhere := newBareSite(t)
	s := newClaimSite(t)
	s.onlyLooksAt(s.ns)
	assert.Contains(t, notes(t, "hotseat", system), "hotseat dev watches "+s.ns+". It ignores ClusterModelCaches: only\na release that watches all namespaces handles them.")
	s.hub.Put("org/mine", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("w"), 1<<20)}})
	s.hub.Gate(token)
	mine := func(spec *v1alpha1.ModelCacheSpec) {
		root := int64(0)
		spec.ClaimTemplate, spec.Fetch.RunAsUser = s.template("1Gi"), &root
		spec.Credentials = &v1alpha1.ModelClaimCredentials{SecretRef: &v1alpha1.SecretReference{Name: "hub"}}
	}
	theirs := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere.ns, Name: "theirs"}, Spec: v1alpha1.ModelCacheSpec{Source: v1alpha1.ModelSource{URI: "hf://org/mine"}}}
	mine(&theirs.Spec)
	ofAll := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "of-all"}, Spec: v1alpha1.ClusterModelCacheSpec{Source: theirs.Spec.Source, NodeGroups: []string{"none"}}}
	for _, o := range []client.Object{theirs, ofAll} {
		require.NoError(t, s.api.Create(t.Context(), o))
		t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(s.api.Delete(context.Background(), o))) })
	}

	elsewhere.engineImage()
	for _, each := range []*site{elsewhere, s.site} {
		each.declare("apiVersion: hotseat.dev/v1alpha1\nkind: Model\nmetadata: {name: llama}\nspec: {url: 'hf://org/llama', resourceProfile: e2e-processor, minReplicas: 1}\n")
	}
	s.answersFrom("llama", "default (1)")

	elsewhere.addPool(nil)
	mounts := s.mounting("mounts", "of-all", true)
	require.NoError(t, s.api.Create(t.Context(), mounts))
	s.eventually("who mounts a model of the cluster is told that its claim is not made", func() bool {
		return s.kubectl("get", "events", "--field-selector", "involvedObject.name=mounts,reason=OneNamespace", "-o", "name") != ""
	})
	require.NoError(t, s.api.Delete(t.Context(), mounts))

	c := s.keep("mine", mine)
	s.says("mine", v1alpha1.ConditionCredentialsAccepted, v1alpha1.ReasonSecretMissing)
	require.NoError(t, s.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "hub"}, StringData: map[string]string{"HF_TOKEN": token}}))
	s.says("mine", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimPending)
	s.volume("mine", "", "1Gi")
	s.told("mine", "the claim has it", whole)
	s.eventually("its Job is gone", func() bool { return s.absent(&batchv1.Job{}, "mine-fetch") })

	s.addPool(func(config *v1alpha1.LauncherConfig) {
		config.Spec.ModelCache = &v1alpha1.LauncherModelCache{Claims: []string{"mine"}}
		config.Spec.Population.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)} // where the volume is
	})
	pod := s.start(server{app: "mine", node: 1})
	s.served("mine", 1)
	i := s.instance(s.poolPods()[cluster.NodeName(1)].Name, "mine", "awake")
	assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom, i.ModelWhy)
	assert.Contains(t, i.ModelPath, podmeta.ClaimDir("mine"))
	s.told("mine", "who reads it", func(status *v1alpha1.ModelCacheStatus) bool { return len(status.InUseBy) > 0 })

	require.NoError(t, s.api.Delete(t.Context(), pod))
	s.gone("mine")
	s.kubectl("delete", "lcfg/simulated")
	require.NoError(t, s.api.Delete(t.Context(), c))
	s.eventually("the claim is gone with it", func() bool {
		return s.absent(&v1alpha1.ModelCache{}, "mine") && s.absent(&corev1.PersistentVolumeClaim{}, "mine")
	})
	for _, o := range []client.Object{theirs, ofAll} {
		require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		assert.Empty(t, o.GetFinalizers(), o.GetName())
	}
	others := elsewhere.model("llama")
	assert.Empty(t, others.Finalizers)
	assert.Equal(t, v1alpha1.ModelStatus{}, others.Status, "nobody looks at it")
	assert.Empty(t, elsewhere.kubectl("get", "isc,deployments,pods", "-o", "name"))
	status, text, err := elsewhere.chatAt(t.Context(), s.frontDoor(), "llama")
	require.NoError(t, err)
	assert.Equal(t, 404, status, text)
	s.kubectl("delete", "mdl/llama")
	assert.Empty(t, theirs.Status.Conditions, "nobody looks at it")
	assert.Empty(t, ofAll.Status.Conditions, "nobody looks at it")
	assert.Empty(t, elsewhere.config().Status.Conditions, "nobody looks at it")
	elsewhere.kubectl("delete", "lcfg/simulated")
	assert.NotContains(t, elsewhere.kubectl("get", "pvc,jobs,events", "-o", "name"), "theirs")
	assert.Equal(t, "0", s.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=controller", "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"))
	require.NoError(t, checkRights(t.Context(), false))

	s.keep("left", mine)
	s.says("left", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimPending)
	_, err = s.cluster.Helm(t.Context(), "uninstall", "hotseat", "--namespace", system, "--wait", "--timeout", patience.Wait().String())
	require.NoError(t, err)
	var left v1alpha1.ModelCache
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "left"}, &left))
	assert.Empty(t, left.Finalizers, "nothing holds it once the controller has gone")
}
