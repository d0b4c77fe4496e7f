//go:build cluster && clusterlong

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// claimSite is a namespace with a StorageClass of volumes that somebody made, and a hub.
type claimSite struct {
	*site
	hub *hubserver.Hub
}

func newClaimSite(t *testing.T) *claimSite {
	t.Helper()
	s := &claimSite{site: newBareSite(t)}
	s.hub = s.newHub()
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.ns}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &wait}
	require.NoError(t, s.api.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(s.api.Delete(context.Background(), class))) })
	return s
}

// volume makes a volume of the class: a folder of node 1, or, with a folder of the
// machine, one that all nodes have.
func (s *claimSite) volume(name, folder, size string) {
	s.t.Helper()
	kind := corev1.HostPathDirectory // of the machine: nobody makes it again once the test has removed it
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: s.ns, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
	}}
	if folder == "" {
		kind, folder = corev1.HostPathDirectoryOrCreate, "/var/lib/hotseat/"+v.Name
		v.Spec.AccessModes[0] = corev1.ReadWriteOnce
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{cluster.NodeName(1)}}},
		}}}}
	}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: folder, Type: &kind}
	require.NoError(s.t, s.api.Create(s.t.Context(), v))
	s.t.Cleanup(func() { assert.NoError(s.t, client.IgnoreNotFound(s.api.Delete(context.Background(), v))) })
}

// keep makes a ModelCache of a model of the hub.
func (s *claimSite) keep(name string, change func(*v1alpha1.ModelCacheSpec)) *v1alpha1.ModelCache {
	s.t.Helper()
	c := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: v1alpha1.ModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/" + name}, Fetch: v1alpha1.ModelFetch{Env: map[string]string{"HF_ENDPOINT": s.hub.URL}, CAConfigMap: hubCA},
	}}
	change(&c.Spec)
	require.NoError(s.t, s.api.Create(s.t.Context(), c))
	return c
}

// template is a claim of the class.
func (s *claimSite) template(size string) *v1alpha1.ModelClaimTemplate {
	return &v1alpha1.ModelClaimTemplate{StorageClassName: &s.ns, Storage: resource.MustParse(size)}
}

// told waits until the status of a ModelCache is so.
func (s *claimSite) told(name, what string, so func(*v1alpha1.ModelCacheStatus) bool) *v1alpha1.ModelCacheStatus {
	s.t.Helper()
	var c v1alpha1.ModelCache
	deadline := time.Now().Add(patience.Wait())
	for {
		require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &c))
		if so(&c.Status) {
			return &c.Status
		}
		require.True(s.t, time.Now().Before(deadline), "%s: %s: %+v", name, what, c.Status)
		time.Sleep(50 * time.Millisecond)
	}
}

// says waits until a condition of a ModelCache has a reason, and gives its message.
func (s *claimSite) says(name, kind, reason string) (message string) {
	s.t.Helper()
	s.told(name, kind+" is "+reason, func(status *v1alpha1.ModelCacheStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c != nil {
			message = c.Message
		}
		return c != nil && c.Reason == reason
	})
	return message
}

func whole(s *v1alpha1.ModelCacheStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAvailable)
}

func (s *claimSite) absent(o client.Object, name string) bool {
	return apierrors.IsNotFound(s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o))
}

func TestAModelIsKeptOnAClaimThatIsMadeForItAndGoesWithIt(t *testing.T) {
	const size = 2 << 20
	s := newClaimSite(t)
	s.hub.Put("org/mine", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("w"), size)}})
	stands := s.hub.Hold("model.safetensors", size/2)
	root, rate := int64(0), resource.MustParse("1Mi")
	c := s.keep("mine", func(spec *v1alpha1.ModelCacheSpec) {
		spec.ClaimTemplate, spec.Fetch.RunAsUser, spec.Fetch.BytesPerSecond = s.template("1Gi"), &root, &rate
	})
	assert.Contains(t, s.says("mine", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimPending), "has not been placed", "there is no volume yet")
	s.volume("mine", "", "1Gi")

	select {
	case <-stands:
	case <-time.After(patience.Wait()):
		require.Fail(t, "no Pod fetches it")
	}
	var pods corev1.PodList
	require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelModelCache: "mine"}))
	require.Len(t, pods.Items, 1)
	require.NoError(t, s.api.Delete(t.Context(), &pods.Items[0]))
	status := s.told("mine", "the claim has it", whole)
	assert.Equal(t, hubCommit, status.Revision)
	assert.EqualValues(t, size+2, status.SizeBytes)
	assert.True(t, slices.ContainsFunc(s.hub.Seen(), func(r hubserver.Request) bool {
		return r.Content && strings.HasPrefix(r.Range, "bytes=") && r.Range != "bytes=0-"
	}), "it went on where it was: %+v", s.hub.Seen())
	s.eventually("its Job is gone", func() bool { return s.absent(&batchv1.Job{}, "mine-fetch") })
	assert.Regexp(t, `mine +hf://org/mine +mine +2.0 MiB +0 +True`, s.kubectl("get", "mc", "mine"))

	for _, policy := range []v1alpha1.ModelReclaimPolicy{v1alpha1.ReclaimRetain, v1alpha1.ReclaimDelete} {
		s.kubectl("patch", "mc/mine", "--type=merge", "-p", `{"spec":{"reclaimPolicy":"`+string(policy)+`"}}`)
		s.eventually("the claim is owned as its policy says", func() bool {
			var claim corev1.PersistentVolumeClaim
			require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(c), &claim))
			return len(claim.OwnerReferences) > 0 == (policy == v1alpha1.ReclaimDelete)
		})
	}
	namesake := &v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: v1alpha1.ClusterModelCacheSpec{Source: c.Spec.Source, NodeGroups: []string{"none"}}}
	require.NoError(t, s.api.Create(t.Context(), namesake))
	t.Cleanup(func() { assert.NoError(t, s.api.Delete(context.Background(), namesake)) })
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "user"}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"no": "node"}, // it need not run to count
		Containers:   []corev1.Container{{Name: "c", Image: "hotseat.local/launcher:dev"}},
		Volumes:      []corev1.Volume{{Name: "m", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "mine"}}}},
	}}
	require.NoError(t, s.api.Create(t.Context(), user))
	s.told("mine", "who mounts the claim", func(status *v1alpha1.ModelCacheStatus) bool {
		return slices.Equal(status.InUseBy, []string{"Pod user"})
	})
	require.NoError(t, s.api.Delete(t.Context(), c))
	assert.Contains(t, s.says("mine", v1alpha1.ConditionDeletionBlocked, v1alpha1.ReasonInUse), "is mounted by Pod user")
	require.NoError(t, s.api.Delete(t.Context(), user))
	s.eventually("the claim is gone with it", func() bool {
		return s.absent(&v1alpha1.ModelCache{}, "mine") && s.absent(&corev1.PersistentVolumeClaim{}, "mine")
	})
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(namesake), namesake))
	assert.True(t, namesake.DeletionTimestamp.IsZero(), "one of the cluster by the same name is another")
}

// sharedFolder is one that all nodes have and everybody may write to.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hotseat-claim-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

func TestWhyAModelIsNotOnItsClaimIsToldAndItIsFetchedOnceItCanBe(t *testing.T) {
	const token = "hf_aTokenThatNobodyIsToSee"
	s := newClaimSite(t)
	for _, name := range []string{"small", "gated", "classless"} {
		s.hub.Put("org/"+name, hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"model.safetensors": bytes.Repeat([]byte("w"), 2<<20)}})
	}
	s.hub.Gate(token)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "hub"}, StringData: map[string]string{"TOKEN": token}}
	gated := func(spec *v1alpha1.ModelCacheSpec) {
		spec.Credentials = &v1alpha1.ModelClaimCredentials{SecretRef: &v1alpha1.SecretReference{Name: secret.Name}}
	}
	s.keep("gated", func(spec *v1alpha1.ModelCacheSpec) { gated(spec); spec.Claim = &v1alpha1.ClaimReference{Name: "later"} })
	assert.Contains(t, s.says("gated", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimMissing), "spec.claim")
	s.volume("gated", sharedFolder(t), "16Mi")
	require.NoError(t, s.api.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "later"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &s.ns, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
	}}))
	s.says("gated", v1alpha1.ConditionCredentialsAccepted, v1alpha1.ReasonSecretMissing)
	require.NoError(t, s.api.Create(t.Context(), secret))
	assert.Contains(t, s.says("gated", v1alpha1.ConditionCredentialsAccepted, v1alpha1.ReasonSecretInvalid), `"TOKEN" is not known`)
	secret.Data, secret.StringData = map[string][]byte{"HF_TOKEN": []byte(token)}, nil
	require.NoError(t, s.api.Update(t.Context(), secret))
	s.told("gated", "the claim has it", whole)

	s.keep("classless", func(spec *v1alpha1.ModelCacheSpec) {
		gated(spec)
		class := "none-" + s.ns
		spec.ClaimTemplate = &v1alpha1.ModelClaimTemplate{StorageClassName: &class, Storage: resource.MustParse("16Mi")}
	})
	assert.Contains(t, s.says("classless", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimPending), "there is neither the StorageClass")
	s.keep("refused", func(spec *v1alpha1.ModelCacheSpec) {
		spec.ClaimTemplate, spec.Fetch.Env["no=name"] = s.template("16Mi"), "x"
	})
	assert.Contains(t, s.says("refused", v1alpha1.ConditionAvailable, v1alpha1.ReasonJobRefused), "env")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
	require.NoError(t, s.api.Create(t.Context(), quota))
	s.kubectl("wait", "--for=jsonpath={.status.hard.pods}=0", "quota/pods", "--timeout="+patience.Wait().String())
	podless := s.keep("podless", func(spec *v1alpha1.ModelCacheSpec) { spec.ClaimTemplate = s.template("16Mi") })
	assert.Contains(t, s.says("podless", v1alpha1.ConditionAvailable, v1alpha1.ReasonNotReady), "Job podless-fetch has no Pod")
	require.NoError(t, s.api.Delete(t.Context(), podless))
	require.NoError(t, s.api.Delete(t.Context(), quota))
	s.volume("small", sharedFolder(t), "1Mi")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "reader"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "none"}}}
	s.keep("small", func(spec *v1alpha1.ModelCacheSpec) {
		spec.Credentials = &v1alpha1.ModelClaimCredentials{ServiceAccountName: account.Name}
		spec.ClaimTemplate = s.template("1Mi")
		spec.ClaimTemplate.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	s.says("small", v1alpha1.ConditionCredentialsAccepted, v1alpha1.ReasonAccountMissing)
	require.NoError(t, s.api.Create(t.Context(), account))
	assert.Contains(t, s.says("small", v1alpha1.ConditionCredentialsAccepted, v1alpha1.ReasonAccessDenied), "lists (none, which does not exist) has HF_TOKEN")
	account.Secrets = []corev1.ObjectReference{{Name: secret.Name}}
	require.NoError(t, s.api.Update(t.Context(), account))
	said := s.says("small", v1alpha1.ConditionCapacityExceeded, "CapacityExceeded")
	assert.Contains(t, said, "the model takes 2.0 MiB, but of the limit of 1.0 MiB")
	assert.Contains(t, said, "raise spec.claimTemplate.storage")
	s.kubectl("delete", "pvc/small", "--timeout="+patience.Wait().String()) // which goes, though the Pod that has failed has mounted it
	assert.NotContains(t, s.kubectl("get", "mc,jobs,pods", "-o", "yaml"), token)
}

// The example is for a cluster whose default StorageClass has volumes that all nodes have.
func TestTheExampleOfAModelOnAClaimIsServedFromThereAndTheClaimStays(t *testing.T) {
	s := newClaimSite(t)
	_, err := s.cluster.Kubectl(t.Context(), nil, "annotate", "storageclass", s.ns, "storageclass.kubernetes.io/is-default-class=true")
	require.NoError(t, err)
	folder := sharedFolder(t)
	tiny := filepath.Join(folder, "from", "tiny")
	require.NoError(t, os.MkdirAll(tiny, 0o755))
	for _, name := range []string{"config.json", "model.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(tiny, name), []byte("{}"), 0o644))
	}
	s.volume("models", folder, "2Gi")
	namesake := &v1alpha1.ClusterModelCache{
		ObjectMeta: metav1.ObjectMeta{Name: "tiny"},
		Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: "hf://org/another"}, NodeGroups: []string{s.ns}},
	}
	require.NoError(t, s.api.Create(t.Context(), namesake))
	t.Cleanup(func() { assert.NoError(t, s.api.Delete(context.Background(), namesake)) })

	s.apply("examples/model-cache/claim.yaml")
	s.kubectl("wait", "--for=condition=Available", "--timeout="+patience.Wait().String(), "mc/tiny")
	s.kubectl("rollout", "status", "deployment/tiny", "--timeout="+patience.Wait().String())
	s.kubectl("wait", "--for=jsonpath={.status.ready}=2", "lcfg/claimed", "--timeout="+patience.Wait().String()) // the launcher of the other node may come later
	var from []string
	for _, pod := range s.launcherPods("claimed") {
		for _, i := range s.instances(s.launcher(pod.Name)) {
			from = append(from, i.ModelFrom, i.ModelPath)
			s.told("tiny", "which inference server reads it", func(status *v1alpha1.ModelCacheStatus) bool {
				return slices.Contains(status.InUseBy, "inference server "+i.InstanceID+" of "+pod.Name)
			})
		}
	}
	status := s.told("tiny", "it is whole", whole)
	assert.Equal(t, []string{launcherapi.ModelFromCache, podmeta.ClaimDir("models") + "/" + status.Folder}, from)
	assert.FileExists(t, filepath.Join(folder, status.Folder, "model.safetensors"))

	var like appsv1.Deployment
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "tiny"}, &like))
	gated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gated", Annotations: like.Spec.Template.Annotations}, Spec: like.Spec.Template.Spec}
	gated.Annotations[podmeta.AnnotationServerPatch] = strings.Replace(gated.Annotations[podmeta.AnnotationServerPatch], "0.4", "0.3", 1) // of which nothing sleeps
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
	require.NoError(t, s.api.Create(t.Context(), gated))
	_, why := s.placed("gated")
	assert.Contains(t, why.Why, "its model is on PersistentVolumeClaim models, which the launcher of node ")
	require.NoError(t, s.api.Delete(t.Context(), gated))

	s.kubectl("delete", "mc/tiny", "--timeout="+patience.Wait().String())
	assert.FileExists(t, filepath.Join(folder, status.Folder, "model.safetensors"), "a claim that was there is left as it is")
	assert.False(t, s.absent(&corev1.PersistentVolumeClaim{}, "models"))
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(namesake), namesake), "a ClusterModelCache of that name is another object")
	available := meta.FindStatusCondition(namesake.Status.Conditions, v1alpha1.ConditionAvailable)
	require.NotNil(t, available)
	assert.Equal(t, v1alpha1.ReasonNodeGroupMissing, available.Reason)
}
