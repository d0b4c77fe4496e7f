package allocations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

func TestKubeletsWordCountsAheadForAPodThatNoEarlierOneCanBeTakenFor(t *testing.T) {
	for name, e := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"named by the API server":               {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-5d4f7-x2v9k", GenerateName: "req-5d4f7-"}}, true},
		"of a StatefulSet":                      {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-0", GenerateName: "req-"}}, false},
		"of a StatefulSet of tens of thousands": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-24567", GenerateName: "req-"}}, false},
		"named by hand":                         {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-x2v9k"}}, false},
		"named by hand, its status written":     {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req"}, Status: corev1.PodStatus{StartTime: &metav1.Time{}}}, true},
		"being deleted":                         {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-x2v9k", GenerateName: "req-", DeletionTimestamp: &metav1.Time{}}}, false},
		"ended":                                 {corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "req-x2v9k", GenerateName: "req-"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.False(t, allocations.CountsAhead(&e.pod), "it is on no node")
			e.pod.Spec.NodeName = "node-0"
			assert.Equal(t, e.want, allocations.CountsAhead(&e.pod))
		})
	}
}

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// requester is one whose program runs, or does not yet.
func requester(runs bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "req", UID: "uid"}}
	p.Spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer}}
	if runs {
		p.Status.PodIP = "10.1.0.2"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	return p
}

func TestKubeletIsAskedOnceMoreWhenTheProgramRuns(t *testing.T) {
	told := []podresourcesapi.Pod{pod("req", podmeta.ServingContainer, "GPU-a")}
	b := allocations.NewBook()
	assert.True(t, b.IsDue(now, requester(false)))
	b.NoteKubelet(now, requester(false), told, "")
	assert.Equal(t, dualpods.Allocation{GPUs: []string{"GPU-a"}, Early: true}, b.Kubelet()["uid"])
	assert.False(t, b.IsDue(now, requester(false)))
	assert.True(t, b.IsDue(now, requester(true)))
	b.NoteKubelet(now, requester(true), nil, "refused")
	assert.Equal(t, []string{"GPU-a"}, b.Kubelet()["uid"].GPUs, "what it gave counts until it says otherwise")
	assert.False(t, b.IsDue(now, requester(true)), "it was asked a moment ago")
	b.NoteKubelet(now.Add(time.Second), requester(true), told, "")
	assert.False(t, b.IsDue(now.Add(time.Hour), requester(true)), "what it gave stays given")
	b.Forget(func(types.UID) bool { return true })
	assert.Empty(t, b.Kubelet())
}

func TestKubeletThatWasAskedInVainAheadIsAskedAnewWhenTheProgramRuns(t *testing.T) {
	b := allocations.NewBook()
	b.NoteKubelet(now, requester(false), nil, "refused")
	assert.False(t, b.IsDue(now, requester(false)))
	assert.True(t, b.IsDue(now, requester(true)))
	b.NoteKubelet(now.Add(time.Second), requester(true), nil, "refused")
	assert.Equal(t, dualpods.Allocation{Why: "refused", Since: now.Add(time.Second), Again: now.Add(time.Second + dualpods.FirstAllocationPause)}, b.Kubelet()["uid"])
}

func TestGPUsOfAProgramAreThoseOfItsProcess(t *testing.T) {
	b := allocations.NewBook()
	b.NoteProgram("uid", "process-1", []string{"GPU-a"})
	gpus, ok := b.Program("uid", "process-1")
	assert.True(t, ok)
	assert.Equal(t, []string{"GPU-a"}, gpus)
	_, ok = b.Program("uid", "process-2")
	assert.False(t, ok)
	b.Forget(func(types.UID) bool { return true })
	_, ok = b.Program("uid", "process-1")
	assert.False(t, ok)
}

func TestWhoseWordCountsWhenTwoRequestersClaimAGPU(t *testing.T) {
	a, other := []string{"GPU-a"}, []string{"GPU-b"}
	says := func(gpus []string) allocations.Claim { return allocations.Claim{Says: gpus, Answers: true} }
	given := func(gpus, says []string) allocations.Claim {
		return allocations.Claim{Given: gpus, Says: says, Answers: true}
	}
	bound := func(gpus []string) allocations.Claim {
		return allocations.Claim{Bound: gpus, Says: gpus, Answers: true}
	}
	for name, c := range map[string]struct {
		mine, theirs allocations.Claim
		counts       bool // their record
		rival        bool
	}{
		"both say so":                                 {says(a), says(a), false, true},
		"they say different ones":                     {says(a), says(other), false, false},
		"this one does not answer":                    {allocations.Claim{}, says(a), false, false},
		"the other does not answer":                   {says(a), allocations.Claim{}, false, false},
		"the kubelet gave it to this one":             {given(a, a), says(a), false, false},
		"the kubelet gave it to the other":            {says(a), given(a, nil), false, true},
		"the kubelet gave it to both":                 {given(a, a), given(a, a), false, true},
		"the other lies about what it was given":      {given(a, a), given(other, a), false, false},
		"this one lies about what it was given":       {given(other, a), given(a, a), false, false},
		"this one is bound, the other says so":        {bound(a), says(a), false, false},
		"this one is bound, the other was given it":   {bound(a), given(a, a), false, false},
		"both are bound":                              {bound(a), bound(a), true, true},
		"the other's record does not count":           {says(a), allocations.Claim{Bound: a}, false, false},
		"the other is bound":                          {says(a), allocations.Claim{Bound: a}, true, true},
		"the kubelet gave it, and the other is bound": {given(a, a), allocations.Claim{Bound: a}, true, true},
		"what its record names counts, not its word":  {allocations.Claim{Bound: other, Says: a, Answers: true}, allocations.Claim{Bound: a}, true, false},
	} {
		assert.Equal(t, c.rival, c.mine.IsRival(&c.theirs, c.counts), name)
	}
}
