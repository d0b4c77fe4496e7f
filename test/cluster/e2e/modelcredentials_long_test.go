//go:build cluster && clusterlong

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// credentialsTold waits until the condition of a cache's credentials has a reason.
func (s *modelSite) credentialsTold(name, reason string) *metav1.Condition {
	s.t.Helper()
	var is *metav1.Condition
	s.told(name, "its credentials are "+reason, func(status *v1alpha1.ClusterModelCacheStatus) bool {
		is = meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCredentialsAccepted)
		return is != nil && is.Reason == reason
	})
	return is
}

// announced waits for a Warning about an object of the cluster.
func (s *modelSite) announced(name, reason string) {
	s.t.Helper()
	s.eventually("an Event of "+name+" says "+reason, func() bool {
		out, err := s.cluster.Kubectl(s.t.Context(), nil, "get", "events", "-A", "--field-selector=type=Warning,reason="+reason, "-o", "jsonpath={.items[*].regarding.name}{.items[*].involvedObject.name}")
		return err == nil && strings.Contains(string(out), name)
	})
}

// keepsByAccount has a model of the hub kept by a Secret that a ServiceAccount lists, once
// the account is there, and lists it.
func (s *modelSite) keepsByAccount(name, model, secret string) {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "reader-" + s.ns}}
	s.keepThis(&v1alpha1.ClusterModelCache{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterModelCacheSpec{
			Source: v1alpha1.ModelSource{URI: "hf://" + model}, NodeGroups: []string{s.group},
			Credentials: &v1alpha1.ModelCredentials{ServiceAccountName: account.Name},
		},
	})
	assert.Contains(s.t, s.credentialsTold(name, v1alpha1.ReasonAccountMissing).Message, system+"/"+account.Name)
	s.announced(name, v1alpha1.ReasonAccountMissing)
	require.NoError(s.t, s.api.Create(s.t.Context(), account))
	s.t.Cleanup(func() { assert.NoError(s.t, client.IgnoreNotFound(s.api.Delete(context.Background(), account))) })
	assert.Contains(s.t, s.credentialsTold(name, v1alpha1.ReasonSecretMissing).Message, "lists no Secret with HF_TOKEN")
	account.Secrets = []corev1.ObjectReference{{Name: secret}}
	require.NoError(s.t, s.api.Update(s.t.Context(), account))
	s.told(name, "both nodes have it", everywhere)
	s.credentialsTold(name, v1alpha1.ReasonSecretRead)
}

func TestAGatedModelIsFetchedByTheSecretThatItsCacheNames(t *testing.T) {
	const token = "hf_aTokenThatNobodyIsToSee"
	s := newModelSite(t, nil)
	s.hub.Put("org/gated", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{
		"config.json": []byte(`{}`), "model.safetensors": bytes.Repeat([]byte("w"), 1<<20),
	}})
	s.hub.GateFiles(token) // as the public hub has it: which files there are is told to anybody
	s.allReady()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "hub-" + s.ns}}
	c := &v1alpha1.ClusterModelCache{
		ObjectMeta: metav1.ObjectMeta{Name: "gated"},
		Spec: v1alpha1.ClusterModelCacheSpec{
			Source: v1alpha1.ModelSource{URI: "hf://org/gated"}, NodeGroups: []string{s.group},
			Credentials: &v1alpha1.ModelCredentials{SecretRef: &v1alpha1.SecretReference{Name: secret.Name}},
		},
	}
	s.keepThis(c)
	assert.Contains(t, s.credentialsTold(c.Name, v1alpha1.ReasonSecretMissing).Message, system+"/"+secret.Name)
	s.announced(c.Name, v1alpha1.ReasonSecretMissing)

	secret.StringData = map[string]string{"HF_TOKN": token}
	require.NoError(t, s.api.Create(t.Context(), secret))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(s.api.Delete(context.Background(), secret))) })
	assert.Contains(t, s.credentialsTold(c.Name, v1alpha1.ReasonSecretInvalid).Message, `"HF_TOKN" is not known: hf:// takes HF_TOKEN`)
	s.announced(c.Name, v1alpha1.ReasonSecretInvalid)

	secret.Data, secret.StringData = nil, map[string]string{"HF_TOKEN": "hf_anotherToken"}
	require.NoError(t, s.api.Update(t.Context(), secret))
	assert.Contains(t, s.credentialsTold(c.Name, v1alpha1.ReasonAccessDenied).Message, system+"/"+secret.Name)
	s.announced(c.Name, v1alpha1.ReasonAccessDenied)

	secret.Data, secret.StringData = nil, map[string]string{"HF_TOKEN": token}
	require.NoError(t, s.api.Update(t.Context(), secret))
	s.told(c.Name, "both nodes have it", everywhere)
	s.credentialsTold(c.Name, v1alpha1.ReasonSecretRead)

	s.keepsByAccount("gated-account", "org/gated", secret.Name)
	without := s.keep("gated-without", "org/gated")
	status := s.told(without.Name, "that it may not read what the other has", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded)
		return degraded != nil && degraded.Reason == v1alpha1.ReasonAccessDenied
	})
	assert.Zero(t, status.Ready)
	assert.Contains(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded).Message, "spec.credentials.secretRef")

	seen := s.kubectl("get", "cmc", "-o", "yaml") + s.kubectl("get", "events", "-A", "-o", "yaml")
	logs, err := s.cluster.Kubectl(t.Context(), nil, "-n", system, "logs", "--selector=app.kubernetes.io/component=controller", "--tail=-1")
	require.NoError(t, err)
	seen += string(logs)
	for node := range 2 {
		models, err := json.Marshal(s.modelsOf(node + 1))
		require.NoError(t, err)
		seen += string(models) + s.kubectl("logs", s.poolPods()[cluster.NodeName(node+1)].Name, "--all-containers")
	}
	for _, value := range []string{token, "hf_anotherToken"} {
		assert.NotContains(t, seen, value)
	}

	// Whoever has it served shows a right of his own.
	entitled := s.start(server{app: "gated", env: []corev1.EnvVar{{Name: "HF_TOKEN", Value: token}}}) // of model org/gated
	pod := s.served("gated", 1)[0]
	i := s.instance(s.poolPods()[pod.Spec.NodeName].Name, "gated", "awake")
	assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom, i.ModelWhy)
	require.NoError(t, s.api.Delete(t.Context(), entitled))
	s.gone("gated")
	s.deploy(server{app: "gated"}, 1)
	refused := s.waitsFor("gated", "the model hf://org/gated is private")
	assert.Contains(t, refused.Annotations[podmeta.AnnotationStatus], "HF_TOKEN")
	patch := []byte(`{"spec": {"credentials": {"shared": true}}}`)
	require.NoError(t, s.api.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, patch)))
	s.served("gated", 1)
}
