package modelvolume

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"hotseat.dev/hotseat/spec/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var here = Place{"llama.70b", "team"}

const store = "/var/lib/models"

// world returns a World with a cache whose version is known, and a Pod that names its claim.
func world() *World {
	return &World{
		Caches: map[string]*v1alpha1.ClusterModelCache{here.Cache: {
			ObjectMeta: metav1.ObjectMeta{Name: here.Cache, UID: "u1"},
			Spec:       v1alpha1.ClusterModelCacheSpec{NodeGroups: []string{"gpu", "more"}},
			Status:     v1alpha1.ClusterModelCacheStatus{ID: "key", SizeBytes: 100},
		}},
		Groups: map[string]*v1alpha1.ModelCacheNodeGroup{
			"gpu": {Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: store}}, "more": {Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: store}},
		},
		Pods:    []corev1.Pod{pod("reader", here.Namespace, here.Cache)},
		Volumes: map[Place]*corev1.PersistentVolume{}, Claims: map[Place]*corev1.PersistentVolumeClaim{},
	}
}

func pod(name, namespace string, caches ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "pod"}}
	for _, cache := range caches {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimOf(cache)}}})
	}
	return p
}

func (w *World) cache() *v1alpha1.ClusterModelCache { return w.Caches[here.Cache] }

// made adds the volume and the claim as the controller creates them, and bound.
func (w *World) made() {
	w.Volumes[here], w.Claims[here] = volume(w.cache(), here, store), claim(w.cache(), here)
	w.Volumes[here].Status.Phase, w.Claims[here].Status.Phase = corev1.VolumeBound, corev1.ClaimBound
}

// finished makes the Pod one that has finished on a node.
func (w *World) finished() {
	w.Pods[0].Spec.NodeName, w.Pods[0].Status.Phase = "n1", corev1.PodSucceeded
}

func (w *World) private() {
	w.cache().Spec.Credentials = &v1alpha1.ModelCredentials{SecretRef: &v1alpha1.SecretReference{Name: "hub"}}
}

// Writes of a plan, as done describes them.
var (
	bothMade   = []string{"+PersistentVolume hotseat-model-llama.70b.team", "+PersistentVolumeClaim team/hotseat-model-llama.70b"}
	claimMade  = bothMade[1:]
	claimGoes  = []string{"-PersistentVolumeClaim team/hotseat-model-llama.70b"}
	volumeGoes = []string{"-PersistentVolume hotseat-model-llama.70b.team"}
)

// row is an example of a row of the table in spec/modelvolume.md.
type row struct {
	make func(w *World)
	done []string
	told string // reason of the report to the Pod; empty: no report
}

var rows = map[string][]row{
	"unused": {
		{make: func(w *World) { w.made(); w.Pods = nil }, done: claimGoes},
		{make: func(w *World) { w.made(); w.Pods[0].Status.Phase = corev1.PodSucceeded }, done: claimGoes},
		{make: func(w *World) { w.made(); w.Pods[0].Namespace = "another" }, done: append([]string{"+PersistentVolume hotseat-model-llama.70b.another", "+PersistentVolumeClaim another/hotseat-model-llama.70b"}, claimGoes...)},
		{make: func(w *World) { w.made(); w.Pods = nil; w.Claims[here].DeletionTimestamp = one(metav1.Now()) }},
		{make: func(w *World) { w.made(); w.Pods = nil; delete(w.Claims, here) }, done: volumeGoes},
		{make: func(w *World) { w.made(); w.Pods = nil; w.Caches = nil }, done: claimGoes},
		{make: func(w *World) {
			w.made()
			w.Pods = nil
			delete(w.Claims, here)
			w.Volumes[here].DeletionTimestamp = one(metav1.Now())
		}},
	},
	"kept": {
		{make: func(w *World) { w.made(); w.finished() }},
		{make: func(w *World) { w.made(); w.finished(); w.Caches = nil }},
		{make: func(w *World) { w.made(); w.finished(); delete(w.Claims, here) }, done: volumeGoes},
	},
	"claim being deleted": {
		{make: func(w *World) {
			w.made()
			w.finished()
			w.Pods = append(w.Pods, pod("next", here.Namespace, here.Cache))
			w.Claims[here].DeletionTimestamp = one(metav1.Now())
		}, told: ReasonGoing},
	},
	"cache missing": {
		{make: func(w *World) { w.Caches = nil }, told: ReasonNoSuchCache},
		{make: func(w *World) { w.made(); w.Caches = nil }, told: ReasonNoSuchCache, done: claimGoes},
	},
	"cache being deleted": {
		{make: func(w *World) { w.cache().DeletionTimestamp = one(metav1.Now()) }, told: ReasonDeleting},
		{make: func(w *World) { w.made(); w.cache().DeletionTimestamp = one(metav1.Now()) }, told: ReasonDeleting},
	},
	"private": {
		{make: func(w *World) { w.private() }, told: v1alpha1.ReasonPrivate},
		{make: func(w *World) { w.made(); w.private() }, told: v1alpha1.ReasonPrivate, done: claimGoes},
	},
	"group missing":   {{make: func(w *World) { w.made(); delete(w.Groups, "more") }, told: v1alpha1.ReasonNodeGroupMissing}},
	"several folders": {{make: func(w *World) { w.Groups["more"].Spec.Path = "/other" }, told: v1alpha1.ReasonSeveralFolders}},
	"several versions": {{make: func(w *World) {
		w.made()
		w.cache().Status.ID = ""
		w.cache().Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMountable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSeveralVersions, Message: "ClusterModelCache llama.70b: …"}}
	}, told: v1alpha1.ReasonSeveralVersions}, {make: func(w *World) { // no Pod has named the claim yet, so the condition is missing
		w.cache().Status.ID, w.cache().Status.Ready = "", 2
	}, told: v1alpha1.ReasonSeveralVersions}},
	"not resolved": {{make: func(w *World) { w.cache().Status.ID = "" }, told: v1alpha1.ReasonNotAsked}},
	"outdated": {
		{make: func(w *World) { w.made(); w.cache().UID = "u2" }, done: claimGoes},
		{make: func(w *World) { w.made(); delete(w.Claims, here); w.cache().UID = "u2" }, done: volumeGoes},
		{make: func(w *World) { w.made(); w.cache().Status.ID = "another" }, done: claimGoes},
	},
	"lost": {
		{make: func(w *World) { w.made(); delete(w.Volumes, here); w.Claims[here].Status.Phase = corev1.ClaimLost }, done: claimGoes},
		{make: func(w *World) { w.made(); delete(w.Claims, here); w.Volumes[here].Status.Phase = corev1.VolumeReleased }, done: volumeGoes},
	},
	"create both": {
		{make: func(*World) {}, done: bothMade},
		{make: func(w *World) { w.private(); w.cache().Spec.Credentials.Shared = true }, done: bothMade},
		{make: func(w *World) { w.made(); delete(w.Volumes, here); w.Claims[here].Status.Phase = corev1.ClaimPending }, done: bothMade[:1]},
		{make: func(w *World) { w.Pods = append(w.Pods, pod("second", here.Namespace, here.Cache, here.Cache)) }, done: bothMade},
	},
	"create claim": {{make: func(w *World) {
		w.made()
		delete(w.Claims, here)
		w.Volumes[here].Status.Phase = corev1.VolumeAvailable
	}, done: claimMade}},
	"complete": {
		{make: func(w *World) { w.made() }},
		{make: func(w *World) { w.made(); w.Claims[here].DeletionTimestamp = one(metav1.Now()) }},
		{make: func(w *World) {
			w.made()
			delete(w.Claims, here)
			w.Volumes[here].DeletionTimestamp = one(metav1.Now())
		}},
	},
}

func one[T any](v T) *T { return &v }

// done describes the writes of a plan.
func done(plan *Plan) (all []string) {
	for _, o := range plan.Make {
		all = append(all, "+"+named(o))
	}
	for _, o := range plan.Delete {
		all = append(all, "-"+named(o))
	}
	slices.Sort(all)
	return all
}

func TestEachRowOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/modelvolume.md")
	require.NoError(t, err)
	var listed []string
	for _, line := range regexp.MustCompile(`(?m)^\| ([a-z][^|]*) \|`).FindAllStringSubmatch(string(text), -1) {
		if line[1] != "row" {
			listed = append(listed, line[1])
		}
	}
	require.ElementsMatch(t, listed, slices.Collect(maps.Keys(rows)), "each row of spec/modelvolume.md has an example here")
	for name, examples := range rows {
		for n, r := range examples {
			w := world()
			r.make(w)
			plan := Decide(w)
			assert.ElementsMatch(t, r.done, done(plan), "%s %d", name, n)
			if r.told == "" {
				assert.Empty(t, plan.Told, "%s %d", name, n)
				continue
			}
			require.Len(t, plan.Told, 1, "%s %d", name, n)
			assert.Equal(t, r.told, plan.Told[0].Reason, "%s %d", name, n)
			assert.Contains(t, plan.Told[0].Message, here.Cache, "%s %d", name, n)
		}
	}
}

func TestAVolumeIsTheFolderOfTheModelOnNodesThatHaveItReadOnly(t *testing.T) {
	plan := Decide(world())
	require.Len(t, plan.Make, 2)
	v, c := plan.Make[0].Object.(*corev1.PersistentVolume), plan.Make[1].Object.(*corev1.PersistentVolumeClaim)
	assert.Equal(t, store+"/models/key/files", v.Spec.Local.Path)
	assert.Equal(t, []string{"ro"}, v.Spec.MountOptions)
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, v.Spec.AccessModes)
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, v.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, "model.hotseat.dev/llama.70b", v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key)
	assert.Equal(t, here.Namespace, v.Spec.ClaimRef.Namespace)
	assert.Equal(t, c.Name, v.Spec.ClaimRef.Name)
	assert.Equal(t, v.Name, c.Spec.VolumeName)
	assert.Empty(t, *c.Spec.StorageClassName)
	assert.Equal(t, v.Spec.Capacity, c.Spec.Resources.Requests)
	for _, o := range plan.Make {
		assert.EqualValues(t, "u1", o.GetOwnerReferences()[0].UID)
	}
}

func TestNamesOfVolumesAreDifferentForEachCacheAndNamespace(t *testing.T) {
	assert.NotEqual(t, volumeName(Place{"a.b", "c"}), volumeName(Place{"a", "b-c"}))
	assert.NotEqual(t, volumeName(Place{"a-b", "c"}), volumeName(Place{"a", "b-c"}))
}
