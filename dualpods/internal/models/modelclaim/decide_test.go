package modelclaim

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world returns a World with a ModelCache, and with its claim, which is bound and large enough.
// There is no Job.
func world() *World {
	w := &World{Now: now, Image: "launcher", Cache: &v1alpha1.ModelCache{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u", Generation: 1, Finalizers: []string{podmeta.FinalizerModelCache}},
		Spec: v1alpha1.ModelCacheSpec{
			Source:        v1alpha1.ModelSource{URI: "hf://org/m"},
			ClaimTemplate: &v1alpha1.ModelClaimTemplate{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Storage: resource.MustParse("10Gi")},
		},
	}}
	w.Claim = w.newClaim()
	w.Claim.UID, w.Claim.Status.Phase = "c", corev1.ClaimBound
	return w
}

// named makes the ModelCache name a claim that the controller did not create.
func (w *World) named() {
	w.Cache.Spec.Claim, w.Cache.Spec.ClaimTemplate = &v1alpha1.ClaimReference{Name: "theirs"}, nil
	w.Claim.Name, w.Claim.Labels, w.Claim.OwnerReferences = "theirs", nil, nil
}

func (w *World) deleted() { w.Cache.DeletionTimestamp = &metav1.Time{Time: now} }

func (w *World) has() {
	w.Cache.Status.ModelID, w.Cache.Status.ClaimUID, w.Cache.Status.Revision = "id", w.Claim.UID, "r"
}

// runs adds a Job of that try, with a running Pod.
func (w *World) runs(tries int32) {
	w.Job = w.newJob(w.credentials(), tries)
	w.Workers = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
}

// creates adds a Job whose Pod was placed on a node that long ago. The kubelet is still creating
// its container.
func (w *World) creates(ago time.Duration) {
	w.runs(1)
	pod := w.Workers[0]
	pod.Spec.NodeName, pod.Status.Phase = "n1", corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now.Add(-ago)}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
}

// ends ends the Job that long ago. Its Pod has ended with the message.
func (w *World) ends(kind batchv1.JobConditionType, ago time.Duration, message string) {
	w.Job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: now.Add(-ago)}, Message: "the Job's own words"}}
	w.Workers[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}}}}
}

func (w *World) failed(tries int32, ago time.Duration, reason string) {
	w.runs(tries)
	w.ends(batchv1.JobFailed, ago, `{"error":{"reason":"`+reason+`","detail":"it says why"}}`)
}

func (w *World) gated() {
	w.Cache.Spec.Credentials = &v1alpha1.ModelClaimCredentials{SecretRef: &v1alpha1.SecretReference{Name: "s"}}
	w.Found = sourcesecret.Found{Named: Names(w.Cache), Secrets: []sourcesecret.Secret{{Name: "s", Version: "1", Data: fetchapi.Credentials{"HF_TOKEN": "t"}}}}
}

func user(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func TestEachRowOfTheTable(t *testing.T) {
	const available, degraded = v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded
	for name, c := range map[string]struct {
		so     func(w *World)
		row    string
		do     Action
		again  time.Duration
		reason string // reason of the condition Available
		says   string // text in the message of some condition
		check  func(t *testing.T, w *World, p *Plan, s *v1alpha1.ModelCacheStatus)
	}{
		"it is new": {so: func(w *World) { w.Cache.Finalizers, w.Claim = nil, nil }, row: "no finalizer", do: AddFinalizer, reason: v1alpha1.ReasonPreparing},
		"the claim that it names is missing": {so: func(w *World) { w.named(); w.Claim = nil }, row: "claim missing", reason: v1alpha1.ReasonClaimMissing,
			says: "there is no PersistentVolumeClaim theirs, which spec.claim names"},
		"its claim is to be made": {so: func(w *World) { w.Claim = nil }, row: "create claim", do: MakeClaim, reason: v1alpha1.ReasonPreparing,
			check: func(t *testing.T, _ *World, p *Plan, _ *v1alpha1.ModelCacheStatus) {
				assert.Len(t, p.Claim.OwnerReferences, 1, "it goes with the ModelCache")
			}},
		"its claim is to be made, and to stay": {so: func(w *World) { w.Claim, w.Cache.Spec.ReclaimPolicy = nil, v1alpha1.ReclaimRetain }, row: "create claim", do: MakeClaim, reason: v1alpha1.ReasonPreparing,
			check: func(t *testing.T, _ *World, p *Plan, _ *v1alpha1.ModelCacheStatus) {
				assert.Empty(t, p.Claim.OwnerReferences)
				assert.Equal(t, "u", p.Claim.Labels[podmeta.LabelModelCacheUID])
			}},
		"a claim of its name is somebody else's": {so: func(w *World) { w.Claim.Labels = nil }, row: "name taken", reason: v1alpha1.ReasonNameTaken, says: "was not created for this ModelCache"},
		"its claim is being deleted":             {so: func(w *World) { w.Claim.DeletionTimestamp = &metav1.Time{Time: now} }, row: "claim being deleted", reason: v1alpha1.ReasonClaimMissing},
		"its claim is being deleted, and its Job's Pod keeps it": {so: func(w *World) {
			w.runs(1)
			w.ends(batchv1.JobComplete, 0, `{"id":"id","revision":"r","bytes":1}`)
			w.Claim.DeletionTimestamp = &metav1.Time{Time: now}
		}, row: "claim being deleted", do: DeleteJob, reason: v1alpha1.ReasonClaimMissing},
		"its claim is being deleted, and others keep it": {so: func(w *World) {
			w.Claim.DeletionTimestamp, w.Users, w.Done = &metav1.Time{Time: now}, []*corev1.Pod{user("a", "n1")}, []string{"Pod b"}
			w.Instances = []string{"inference server i of a"}
		}, row: "claim being deleted", reason: v1alpha1.ReasonClaimMissing, says: "stays until no Pod mounts it: delete Pod a, Pod b"},
		"its claim is to grow": {so: func(w *World) { w.has(); w.Cache.Spec.ClaimTemplate.Storage = resource.MustParse("20Gi") }, row: "change claim", do: ChangeClaim, reason: v1alpha1.ReasonWhole,
			check: func(t *testing.T, w *World, p *Plan, _ *v1alpha1.ModelCacheStatus) {
				assert.Equal(t, "20Gi", p.Claim.Spec.Resources.Requests.Storage().String())
				assert.Equal(t, "10Gi", w.Claim.Spec.Resources.Requests.Storage().String())
			}},
		"its claim is not let grow": {so: func(w *World) {
			w.has()
			w.Cache.Spec.ClaimTemplate.Storage, w.Refused = resource.MustParse("20Gi"), "the class lets none grow"
		}, row: "whole", reason: v1alpha1.ReasonWhole, says: "the class lets none grow"},
		"its claim is to stay by now": {so: func(w *World) { w.Cache.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }, row: "change claim", do: ChangeClaim, reason: v1alpha1.ReasonPreparing,
			check: func(t *testing.T, _ *World, p *Plan, _ *v1alpha1.ModelCacheStatus) {
				assert.Empty(t, p.Claim.OwnerReferences)
			}},
		"its Job has fetched it": {so: func(w *World) {
			w.runs(3)
			w.Cache.Status.FailedTries = 2
			w.ends(batchv1.JobComplete, 0, `{"id":"id","revision":"r","bytes":1048576}`)
		}, row: "fetched", reason: v1alpha1.ReasonWhole,
			check: func(t *testing.T, _ *World, _ *Plan, s *v1alpha1.ModelCacheStatus) {
				assert.Equal(t, v1alpha1.ModelCacheStatus{
					ObservedGeneration: 1, Conditions: s.Conditions, Revision: "r", SizeBytes: 1 << 20, Size: "1.0 MiB", Folder: "hotseat-models/models/id/files",
					ModelID: "id", ClaimName: "m", ClaimUID: "c", Job: "m-fetch", InUseBy: s.InUseBy,
				}, *s)
			}},
		"it is there":                       {so: (*World).has, row: "whole", reason: v1alpha1.ReasonWhole},
		"it is there, and its Job still":    {so: func(w *World) { w.has(); w.runs(1) }, row: "whole", do: DeleteJob, reason: v1alpha1.ReasonWhole},
		"another claim of that name had it": {so: func(w *World) { w.has(); w.Claim.UID = "new" }, row: "create Job", do: MakeJob, reason: v1alpha1.ReasonDownloading},
		"an earlier Job is ending":          {so: func(w *World) { w.runs(1); w.Job.DeletionTimestamp = &metav1.Time{Time: now} }, row: "Job being deleted", reason: v1alpha1.ReasonDownloading},
		"its Secret is missing":             {so: func(w *World) { w.gated(); w.Found.Secrets[0].Version = "" }, row: "no credentials", reason: v1alpha1.ReasonSecretMissing, says: "there is no Secret ns/s"},
		"its Secret cannot be used": {so: func(w *World) { w.gated(); w.runs(1); w.Found.Secrets[0].Data = fetchapi.Credentials{"TOKEN": "t"} }, row: "no credentials", do: DeleteJob, reason: v1alpha1.ReasonSecretInvalid,
			says: `"TOKEN" is not known`},
		"the claim that it is copied from is missing": {so: func(w *World) { w.Cache.Spec.Source.URI, w.NoSource = "pvc://from/x", true }, row: "source missing", reason: fetchapi.ReasonNotFound, says: "there is no PersistentVolumeClaim from"},
		"it is to be fetched": {so: func(w *World) { w.gated(); w.Cache.Status.FailedTries = 2 }, row: "create Job", do: MakeJob, reason: v1alpha1.ReasonDownloading,
			check: func(t *testing.T, _ *World, p *Plan, _ *v1alpha1.ModelCacheStatus) {
				assert.EqualValues(t, 3, triesOf(p.Job))
				main := p.Job.Spec.Template.Spec.Containers[0]
				assert.Equal(t, "--storage-limit=10737418240", main.Args[0])
				assert.Equal(t, "s", main.Env[0].ValueFrom.SecretKeyRef.Name)
				assert.Nil(t, p.Job.Spec.Template.Spec.Affinity)
				assert.False(t, *p.Job.Spec.Template.Spec.AutomountServiceAccountToken)
			}},
		"others have the claim on a node": {so: func(w *World) { w.Users = []*corev1.Pod{user("a", "n1")} }, row: "create Job", do: MakeJob, reason: v1alpha1.ReasonDownloading,
			check: func(t *testing.T, _ *World, p *Plan, s *v1alpha1.ModelCacheStatus) {
				terms := p.Job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
				assert.Equal(t, []string{"n1"}, terms[0].MatchFields[0].Values)
				assert.Equal(t, []string{"Pod a"}, s.InUseBy)
			}},
		"its limits have changed": {so: func(w *World) { w.runs(1); n := int32(8); w.Cache.Spec.Fetch.Streams = &n }, row: "outdated", do: DeleteJob, reason: v1alpha1.ReasonDownloading},
		"it failed, and the claim is larger since": {so: func(w *World) {
			w.failed(4, 0, fetchapi.ReasonCapacityExceeded)
			w.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
		}, row: "outdated", do: DeleteJob, reason: v1alpha1.ReasonDownloading,
			check: func(t *testing.T, _ *World, p *Plan, _ *v1alpha1.ModelCacheStatus) { assert.Zero(t, p.Told.Tries) }},
		"it runs, and the claim is larger since": {so: func(w *World) {
			w.runs(1)
			w.Claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
		}, row: "under way", reason: v1alpha1.ReasonDownloading},
		"it failed, and the Secret is another since": {so: func(w *World) {
			w.gated()
			w.failed(1, 0, fetchapi.ReasonAccessDenied)
			w.Found.Secrets[0].Version = "2"
		}, row: "outdated", do: DeleteJob, reason: v1alpha1.ReasonDownloading},
		"its Pod waits for a claim that is elsewhere": {so: func(w *World) {
			w.runs(1)
			w.Workers[0].Status.Phase, w.Workers[0].Spec.NodeName, w.Users = corev1.PodPending, "n2", []*corev1.Pod{user("a", "n1")}
		}, row: "outdated", do: DeleteJob, reason: v1alpha1.ReasonDownloading},
		"it failed just now": {so: func(w *World) { w.failed(2, 5*time.Second, fetchapi.ReasonNotFound) }, row: "failed", again: 15 * time.Second, reason: fetchapi.ReasonNotFound, says: "it says why",
			check: func(t *testing.T, _ *World, _ *Plan, s *v1alpha1.ModelCacheStatus) {
				assert.True(t, meta.IsStatusConditionTrue(s.Conditions, degraded))
				assert.EqualValues(t, 2, s.FailedTries)
			}},
		"it failed a while ago": {so: func(w *World) { w.failed(2, 20*time.Second, fetchapi.ReasonNotFound) }, row: "failed", do: DeleteJob, reason: fetchapi.ReasonNotFound},
		"it failed often":       {so: func(w *World) { w.failed(99, 0, fetchapi.ReasonNotFound) }, row: "failed", again: longestPause, reason: fetchapi.ReasonNotFound},
		"it has no room": {so: func(w *World) { w.failed(1, 0, fetchapi.ReasonCapacityExceeded) }, row: "failed", again: firstPause, reason: fetchapi.ReasonCapacityExceeded,
			says: "PersistentVolumeClaim m has 10.0 GiB: raise spec.claimTemplate.storage"},
		"its source refuses the Secret": {so: func(w *World) { w.gated(); w.failed(1, 0, fetchapi.ReasonAccessDenied) }, row: "failed", again: firstPause, reason: fetchapi.ReasonAccessDenied,
			says: "the credentials are those of Secret ns/s",
			check: func(t *testing.T, _ *World, _ *Plan, s *v1alpha1.ModelCacheStatus) {
				assert.Equal(t, fetchapi.ReasonAccessDenied, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionCredentialsAccepted).Reason)
			}},
		"its user may not write to the claim": {so: func(w *World) { w.gated(); w.failed(1, 0, fetchapi.ReasonClaimNotWritable) }, row: "failed", again: firstPause, reason: fetchapi.ReasonClaimNotWritable,
			says: "it says why",
			check: func(t *testing.T, _ *World, p *Plan, s *v1alpha1.ModelCacheStatus) {
				assert.Equal(t, "it says why", p.Told.Why, "no credential helps")
				assert.Equal(t, v1alpha1.ReasonSecretRead, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionCredentialsAccepted).Reason)
				assert.Equal(t, v1alpha1.ReasonNotAsked, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved).Reason)
			}},
		"its Pods were broken off again and again": {so: func(w *World) { w.runs(1); w.ends(batchv1.JobFailed, 0, ""); w.Workers = nil }, row: "failed", again: firstPause, reason: v1alpha1.ReasonFailed, says: "the Job's own words"},
		"its Pod was killed for its memory": {so: func(w *World) {
			w.runs(1)
			w.ends(batchv1.JobFailed, 0, "last line")
			w.Workers[0].Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		}, row: "failed", again: firstPause, reason: v1alpha1.ReasonFailed, says: "OOMKilled (1) last line"},
		"its Pod ended with an outcome that says nothing": {so: func(w *World) { w.runs(1); w.ends(batchv1.JobFailed, 0, "{}") }, row: "failed", again: firstPause, reason: v1alpha1.ReasonFailed,
			says: "Error (1) and it did not say why: the log of its Pod may say more"},
		"its Pod ended without a word": {so: func(w *World) { w.runs(1); w.ends(batchv1.JobFailed, 0, "") }, row: "failed", again: firstPause, reason: v1alpha1.ReasonFailed,
			says: "Error (1) and it did not say why: the log of its Pod may say more"},
		"its Job is done, and its Pod not heard of": {so: func(w *World) { w.runs(1); w.ends(batchv1.JobComplete, time.Second, "") }, row: "result lost", again: hearLimit - time.Second, reason: v1alpha1.ReasonDownloading},
		"its Job is done, and its Pod gone":         {so: func(w *World) { w.runs(1); w.ends(batchv1.JobComplete, hearLimit, ""); w.Workers = nil }, row: "result lost", do: DeleteJob, reason: v1alpha1.ReasonDownloading},
		"it is fetched":                             {so: func(w *World) { w.runs(1) }, row: "under way", reason: v1alpha1.ReasonDownloading},
		"its class is missing": {so: func(w *World) {
			class := "fast"
			w.Cache.Spec.ClaimTemplate.StorageClassName, w.Claim.Spec.StorageClassName = &class, &class
			w.runs(1)
			w.Claim.Status.Phase, w.NoClass = corev1.ClaimPending, true
		}, row: "under way", reason: v1alpha1.ReasonClaimPending, says: `neither the StorageClass "fast", which spec.claimTemplate.storageClassName names`},
		"its Pod cannot be placed": {so: func(w *World) {
			w.runs(1)
			w.Workers[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node"}}
		}, row: "under way", reason: v1alpha1.ReasonNotReady, says: "Pod worker has not been placed: no node"},

		"its Pod's container is made": {so: func(w *World) { w.creates(startLimit - time.Second) }, row: "under way", again: time.Second, reason: v1alpha1.ReasonDownloading},
		"its Pod's container does not come": {so: func(w *World) { w.creates(startLimit) }, row: "under way", reason: v1alpha1.ReasonNotReady,
			says: "Pod worker is on node n1, but its container has not started within 1m0s: kubectl describe pod/worker says why, for example that a volume"},
		"its ConfigMap is missing": {so: func(w *World) { w.Cache.Spec.Fetch.CAConfigMap = "ca"; w.creates(startLimit) }, row: "under way", reason: v1alpha1.ReasonNotReady,
			says: "for example that ConfigMap ca with the key ca.crt, which spec.fetch.caConfigMap names, or"},
		"its Pod is to be made": {so: func(w *World) {
			w.runs(1)
			w.Workers, w.Job.CreationTimestamp = nil, metav1.Time{Time: now.Add(-time.Second)}
		}, row: "under way", again: hearLimit - time.Second, reason: v1alpha1.ReasonDownloading},
		"its Pod cannot be made": {so: func(w *World) {
			w.runs(1)
			w.Workers, w.Job.CreationTimestamp = nil, metav1.Time{Time: now.Add(-hearLimit)}
		}, row: "under way", reason: v1alpha1.ReasonNotReady, says: "Job m-fetch has no Pod: kubectl describe job/m-fetch says why"},

		"deleted, it is let go":     {so: func(w *World) { w.deleted(); w.Cache.Finalizers = nil }, row: "released", reason: v1alpha1.ReasonWhole},
		"deleted, its Job goes":     {so: func(w *World) { w.deleted(); w.runs(1) }, row: "delete Job", do: DeleteJob, reason: v1alpha1.ReasonRemoving},
		"deleted, its Job is going": {so: func(w *World) { w.deleted(); w.runs(1); w.Job.DeletionTimestamp = &metav1.Time{Time: now} }, row: "delete Job", reason: v1alpha1.ReasonRemoving},
		"deleted, the claim is not its own": {so: func(w *World) { w.deleted(); w.named(); w.Users = []*corev1.Pod{user("a", "n1")} },
			row: "nothing left", do: RemoveFinalizer, reason: v1alpha1.ReasonRemoving},
		"deleted, the claim was just made": {so: func(w *World) { w.deleted(); w.Claim, w.Unheard = nil, true }, row: "claim just created", again: hearLimit, reason: v1alpha1.ReasonRemoving},
		"deleted, the claim is gone":       {so: func(w *World) { w.deleted(); w.Claim = nil }, row: "nothing left", do: RemoveFinalizer, reason: v1alpha1.ReasonRemoving},
		"deleted, the claim stays":         {so: func(w *World) { w.deleted(); w.Cache.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }, row: "retain claim", do: ReleaseClaim, reason: v1alpha1.ReasonRemoving},
		"deleted, and in use":              {so: func(w *World) { w.deleted(); w.Users = []*corev1.Pod{user("a", "n1")} }, row: "in use", reason: v1alpha1.ReasonRemoving, says: "is mounted by Pod a"},
		"deleted":                          {so: (*World).deleted, row: "delete claim", do: DeleteClaim, reason: v1alpha1.ReasonRemoving},
		"deleted, and kept by who has finished": {so: func(w *World) {
			w.deleted()
			w.Claim.DeletionTimestamp, w.Done = &metav1.Time{Time: now}, []string{"Pod b"}
		}, row: "delete claim", reason: v1alpha1.ReasonRemoving, says: "are gone: delete Pod b"},
		"deleted, the claim is going": {so: func(w *World) { w.deleted(); w.Claim.DeletionTimestamp = &metav1.Time{Time: now} }, row: "delete claim", reason: v1alpha1.ReasonRemoving},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			c.so(w)
			p := Decide(w)
			assert.Equal(t, c.row, p.Row)
			assert.Equal(t, c.do, p.Do)
			assert.Equal(t, c.again, p.Again)
			told := w.Cache.DeepCopy()
			p.Told.show(told)
			is := meta.FindStatusCondition(told.Status.Conditions, available)
			if c.row != "released" {
				assert.Equal(t, c.reason, is.Reason)
			}
			assert.True(t, c.says == "" || slices.ContainsFunc(told.Status.Conditions, func(of metav1.Condition) bool {
				return regexp.MustCompile(regexp.QuoteMeta(c.says)).MatchString(of.Message)
			}), "%q in %+v", c.says, told.Status.Conditions)
			if c.check != nil {
				c.check(t, w, p, &told.Status)
			}
		})
	}
}

func TestTheTableOfTheDocumentHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/modelclaim.md")
	require.NoError(t, err)
	var written, coded []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-zA-Z' ]+) \| `).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "row" {
			written = append(written, m[1])
		}
	}
	for _, r := range slices.Concat(keeping, leaving) {
		coded = append(coded, r.row)
	}
	assert.Equal(t, coded, written, "in this order: the first that fits counts")
}

func TestResolvedSaysWhetherTheSourceWasAsked(t *testing.T) {
	w := world()
	says := func() string {
		Decide(w).Told.show(w.Cache)
		return meta.FindStatusCondition(w.Cache.Status.Conditions, v1alpha1.ConditionResolved).Reason
	}
	assert.Equal(t, v1alpha1.ReasonNotAsked, says())
	w.failed(1, firstPause, fetchapi.ReasonUnavailable)
	assert.Equal(t, fetchapi.ReasonUnavailable, says())
	w.runs(2)
	assert.Equal(t, fetchapi.ReasonUnavailable, says(), "it is asked again")
}

func TestWhatTheLastTryMetIsToldUntilOneEndsWell(t *testing.T) {
	w := world()
	w.failed(1, firstPause, fetchapi.ReasonCapacityExceeded)
	Decide(w).Told.show(w.Cache)
	w.Job, w.Workers = nil, nil
	p := Decide(w)
	require.Equal(t, MakeJob, p.Do)
	p.Told.show(w.Cache)
	w.runs(2)
	Decide(w).Told.show(w.Cache)
	for _, kind := range []string{v1alpha1.ConditionDegraded, v1alpha1.ConditionCapacityExceeded} {
		assert.True(t, meta.IsStatusConditionTrue(w.Cache.Status.Conditions, kind), kind)
	}
	w.ends(batchv1.JobComplete, 0, `{"id":"id","revision":"r","bytes":1}`)
	Decide(w).Told.show(w.Cache)
	assert.False(t, meta.IsStatusConditionTrue(w.Cache.Status.Conditions, v1alpha1.ConditionDegraded))
	assert.Nil(t, meta.FindStatusCondition(w.Cache.Status.Conditions, v1alpha1.ConditionCapacityExceeded))
	assert.Zero(t, w.Cache.Status.FailedTries)
}
