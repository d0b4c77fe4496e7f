//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/hubserver"
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
	require.NoError(t, api.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(api.Delete(context.Background(), class))) })
	return s
}

// volume makes a volume of the class: a folder of node 1, or, with a folder of the
// machine, one that all nodes have.
func (s *claimSite) volume(name, folder, size string) {
	s.t.Helper()
	kind := corev1.HostPathDirectoryOrCreate
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: s.ns, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
	}}
	if folder == "" {
		folder = "/var/lib/hotseat/" + v.Name
		v.Spec.AccessModes[0] = corev1.ReadWriteOnce
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{cluster.NodeName(1)}}},
		}}}}
	}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: folder, Type: &kind}
	require.NoError(s.t, api.Create(s.t.Context(), v))
	s.t.Cleanup(func() { assert.NoError(s.t, client.IgnoreNotFound(api.Delete(context.Background(), v))) })
}

// keep makes a ModelCache of a model of the hub.
func (s *claimSite) keep(name string, change func(*v1alpha1.ModelCacheSpec)) *v1alpha1.ModelCache {
	s.t.Helper()
	c := &v1alpha1.ModelCache{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: v1alpha1.ModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/" + name}, Fetch: v1alpha1.ModelFetch{Env: map[string]string{"HF_ENDPOINT": s.hub.URL}, CAConfigMap: hubCA},
	}}
	change(&c.Spec)
	require.NoError(s.t, api.Create(s.t.Context(), c))
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
	deadline := time.Now().Add(patience)
	for {
		require.NoError(s.t, api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &c))
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
	return apierrors.IsNotFound(api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o))
}

// sent is how many bytes of models the hub has sent.
func sent(hub *hubserver.Hub) (n int64) {
	for _, r := range hub.Seen() {
		if r.Content {
			n += r.Sent
		}
	}
	return n
}

func TestAModelIsKeptOnAClaimThatIsMadeForItAndGoesWithIt(t *testing.T) {
	const size = 3 << 20
	s := newClaimSite(t)
	s.hub.Put("org/mine", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("w"), size)}})
	root, rate := int64(0), resource.MustParse("1Mi")
	c := s.keep("mine", func(spec *v1alpha1.ModelCacheSpec) {
		spec.ClaimTemplate, spec.Fetch.RunAsUser, spec.Fetch.BytesPerSecond = s.template("1Gi"), &root, &rate
	})
	assert.Contains(t, s.says("mine", v1alpha1.ConditionAvailable, v1alpha1.ReasonClaimPending), "has not been placed", "there is no volume yet")
	s.volume("mine", "", "1Gi")

	var pod corev1.Pod
	s.eventually("a Pod fetches it", func() bool {
		var pods corev1.PodList
		require.NoError(t, api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelModelCache: "mine"}))
		if len(pods.Items) > 0 {
			pod = pods.Items[0]
		}
		out, err := shared.Kubectl(t.Context(), nil, "-n", s.ns, "logs", "job/mine-fetch")
		return err == nil && bytes.Contains(out, []byte("are fetched"))
	})
	time.Sleep(time.Second)
	require.NoError(t, api.Delete(t.Context(), &pod))
	status := s.told("mine", "the claim has it", whole)
	assert.Equal(t, hubCommit, status.Revision)
	assert.EqualValues(t, size+2, status.SizeBytes)
	assert.Less(t, sent(s.hub), int64(size+size/2), "it went on where it was")
	s.eventually("its Job is gone", func() bool { return s.absent(&batchv1.Job{}, "mine-fetch") })
	assert.Regexp(t, `mine +hf://org/mine +mine +3.0 MiB +0 +True`, s.kubectl("get", "mc", "mine"))

	require.NoError(t, api.Delete(t.Context(), c))
	s.eventually("the claim is gone with it", func() bool {
		return s.absent(&v1alpha1.ModelCache{}, "mine") && s.absent(&corev1.PersistentVolumeClaim{}, "mine")
	})
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

var _ = sharedFolder
