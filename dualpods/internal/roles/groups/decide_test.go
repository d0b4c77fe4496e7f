package groups

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// requesterEntry is the template of a requester, and plainEntry that of a Pod without GPUs.
const (
	requesterEntry = `{"metadata": {"annotations": {"dual-pod.llm-d.ai/server-patch": "spec: {}"}}, "spec": {"containers": [
		{"name": "beside", "image": "b"}, {"name": "inference-server", "image": "requester", "env": [{"name": "A", "value": "$(ENTRY_ADDRESS)"}], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}`
	plainEntry = `{"metadata": {"labels": {"app": "router"}}, "spec": {"containers": [{"name": "router", "image": "router", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}]}]}}`
)

// llama returns a ModelServing of one group with one role, prefill, of one replica.
func llama() *v1alpha1.ModelServing {
	return &v1alpha1.ModelServing{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama", UID: "s", Generation: 3},
		Spec: v1alpha1.ModelServingSpec{Replicas: new(int32(1)), Template: v1alpha1.ServingGroupTemplate{Roles: []v1alpha1.ServingRole{
			{Name: "prefill", Replicas: new(int32(1)), EntryTemplate: &runtime.RawExtension{Raw: []byte(requesterEntry)}},
		}}},
	}
}

// world returns a World of llama whose entry is ready and bound to a launcher. All is as it
// should be.
func world() *World {
	serving := llama()
	w := &World{Serving: serving, Revision: hash(content(&serving.Spec.Template))}
	w.planned("requester")
	w.Revisions = []*appsv1.ControllerRevision{w.newRevision()}
	m := &Member{place: w.wantedPlaces()[0], Wanted: true, Target: &Target{Pod: launcherPod(), Ports: []discoveryv1.EndpointPort{portOf(instancePort, 40000, corev1.ProtocolTCP)}, Serves: true}}
	w.Members = []*Member{m}
	m.Pod.Is, m.Service.Is = w.newPod(m.place), w.newService(m.place)
	m.Pod.Is.UID, m.Service.Is.UID = "p", "v"
	m.Pod.Is.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	m.Slice.Is = w.newSlice(m)
	return w
}

// planned has all groups be of the present revision.
func (w *World) planned(image string) (problems []podmeta.Problem) {
	present, problems := newPlan(w.Revision, &w.Serving.Spec.Template, image)
	w.plans, w.groups = map[string]*plan{w.Revision: present}, nil
	for range 3 {
		w.groups = append(w.groups, present)
	}
	return problems
}

func launcherPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "launcher", UID: "l"}, Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{PodIP: "10.0.0.9"}}
}

func (w *World) member() *Member { return w.Members[0] }

// lacks removes the Pod.
func (w *World) lacks() { w.member().Pod.Is, w.member().Target = nil, nil }

// surplus has the ModelServing want no group any more.
func (w *World) surplus() {
	w.Serving.Spec.Replicas = new(int32(0))
	w.member().Wanted = false
}

func deleted(o metav1.Object) { o.SetDeletionTimestamp(&metav1.Time{Time: now}) }

func TestEachRowOfTheTables(t *testing.T) {
	const pod, service = "Pod llama-0-prefill-0-0", "Service llama-0-prefill-0-0"
	for name, c := range map[string]struct {
		so         func(w *World)
		row        string // of the table of Pods
		do         Action
		address    string // row of the table of addresses
		doAddress  Action
		state      v1alpha1.ServingGroupState // Running if empty; "-": the group is not in the status
		reason     string
		says       string
		again      time.Duration
		checkPod   func(*testing.T, *corev1.Pod)
		checkSlice func(*testing.T, *discoveryv1.EndpointSlice)
	}{
		"all is as it should be": {so: func(*World) {}, row: "Pod ready", address: "slice unchanged"},
		"its Pod is missing": {so: (*World).lacks, row: "create Pod", do: Create, address: "change slice", doAddress: Change,
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonStarting, says: pod + " is being created",
			checkSlice: func(t *testing.T, s *discoveryv1.EndpointSlice) { assert.Empty(t, s.Endpoints) }},
		"its Pod was just created": {so: func(w *World) { w.lacks(); w.member().Slice.Is, w.member().Pod.Unheard = nil, true }, row: "Pod just created", address: "no address",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonStarting, says: "is being created", again: hearLimit},
		"another Pod has the name": {so: func(w *World) { w.lacks(); w.member().Slice.Is, w.member().Pod.Other = nil, Stranger }, row: "Pod name taken", address: "no address",
			state: v1alpha1.GroupFailed, reason: v1alpha1.ReasonNameTaken, says: pod + " exists and was not created for this ModelServing: delete it, or give the ModelServing another name", again: takenPause},
		"the Pod of an earlier one is left": {so: func(w *World) { w.lacks(); w.member().Slice.Is, w.member().Pod.Other = nil, Earlier }, row: "Pod of an earlier one", address: "no address",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonWaitsForDeletion, says: pod + " of the ModelServing that had this name before is not gone yet", again: takenPause},
		"its template is wrong, its Pod runs": {so: func(w *World) { w.Problems = []podmeta.Problem{{Field: "f", Message: "is wrong"}} }, row: "Pod ready", address: "slice unchanged"},
		"its template is wrong": {so: func(w *World) {
			w.lacks()
			w.member().Slice.Is, w.Problems = nil, []podmeta.Problem{{Field: "f", Message: "is wrong"}}
		}, row: "template invalid", address: "no address", state: v1alpha1.GroupFailed, reason: v1alpha1.ReasonMalformedTemplate, says: "cannot be created: f: is wrong"},
		"its Pod is being deleted": {so: func(w *World) { deleted(w.member().Pod.Is) }, row: "Pod being deleted", address: "slice unchanged",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonStarting, says: "is being deleted, and is created again"},
		"its Pod has ended": {so: func(w *World) { w.member().Pod.Is.Status.Phase = corev1.PodFailed }, row: "Pod ended", do: Delete, address: "slice unchanged",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonStarting, says: "has ended, and is created again"},
		"its Pod is of an older template": {so: func(w *World) { w.member().Pod.Is.Labels[podmeta.LabelServingRevision] = "older" }, row: "Pod of another revision", do: Delete, address: "slice unchanged",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonUpdating, says: "of an older template is being replaced"},
		"its Pod was made for a server of two": {so: func(w *World) { w.member().Pod.Is.Annotations[podmeta.AnnotationRank] = "0/2" }, row: "Pod of another size", do: Delete, address: "slice unchanged",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonStarting, says: "was created for a server of another size, and is created again"},
		"its Pod is not ready": {so: func(w *World) {
			w.member().Pod.Is.Status.Conditions = nil
			w.member().Pod.Is.Annotations[podmeta.AnnotationStatus] = `{"state":"Waiting","message":"no launcher"}`
			w.member().Target.Serves = false
		}, row: "Pod not ready", address: "change slice", doAddress: Change, state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonNotReady, says: pod + " is waiting: no launcher",
			checkSlice: func(t *testing.T, s *discoveryv1.EndpointSlice) {
				assert.True(t, *s.Endpoints[0].Conditions.Ready, "addresses that are not ready are published")
				assert.False(t, *s.Endpoints[0].Conditions.Serving)
			}},

		"its Pod waits for the others": {so: func(w *World) {
			w.member().Pod.Is.Status.Conditions = nil
			w.member().Pod.Is.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.GateGang}}
			w.Gangs = func(group string) string { return group + " needs 2 GPUs" }
		}, row: "Pod waits for its gang", address: "slice unchanged", state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonWaitsForGang, says: "llama-0 needs 2 GPUs"},

		"another Service has the name": {so: func(w *World) {
			w.lacks()
			w.member().Service = Held[*corev1.Service]{Other: Stranger}
		}, row: "no Service yet", address: "Service name taken",
			state: v1alpha1.GroupFailed, reason: v1alpha1.ReasonNameTaken, says: service + " exists and was not created for this ModelServing", again: takenPause},
		"the Service of an earlier one is left": {so: func(w *World) {
			w.lacks()
			w.member().Service = Held[*corev1.Service]{Other: Earlier}
		}, row: "no Service yet", address: "Service of an earlier one",
			state: v1alpha1.GroupProgressing, reason: v1alpha1.ReasonWaitsForDeletion, says: service + " of the ModelServing that had this name before is not gone yet", again: takenPause},
		"its Service is missing":        {so: func(w *World) { w.member().Service.Is = nil }, row: "Pod ready", address: "create Service", doAddress: Create},
		"its Service was just created":  {so: func(w *World) { w.member().Service = Held[*corev1.Service]{Unheard: true} }, row: "Pod ready", address: "Service just created", again: hearLimit},
		"its slice is missing":          {so: func(w *World) { w.member().Slice.Is = nil }, row: "Pod ready", address: "create slice", doAddress: Create},
		"its slice was just created":    {so: func(w *World) { w.member().Slice = Held[*discoveryv1.EndpointSlice]{Unheard: true} }, row: "Pod ready", address: "slice just created", again: hearLimit},
		"it is not bound":               {so: func(w *World) { w.member().Slice.Is, w.member().Target = nil, nil }, row: "Pod ready", address: "no address"},
		"its launcher has not reported": {so: func(w *World) { w.member().Target.Ports, w.member().Target.Unknown = nil, true }, row: "Pod ready", address: "ports unknown"},
		"another launcher has it":       {so: func(w *World) { w.member().Target.Pod.UID = "other" }, row: "Pod ready", address: "change slice", doAddress: Change},
		"its instance has another port": {so: func(w *World) {
			w.member().Target.Ports = []discoveryv1.EndpointPort{portOf(instancePort, 40001, corev1.ProtocolTCP)}
		}, row: "Pod ready", address: "change slice", doAddress: Change},
		"somebody has changed its slice":   {so: func(w *World) { w.member().Slice.Is.Labels = nil }, row: "Pod ready", address: "change slice", doAddress: Change},
		"its launcher has an IPv6 address": {so: func(w *World) { w.member().Target.Pod.Status.PodIP = "fd00::9" }, row: "Pod ready", address: "address of another family", doAddress: Delete},

		"it is not wanted": {so: (*World).surplus, row: "surplus", do: Delete, address: "slice unchanged", state: v1alpha1.GroupScaling, reason: v1alpha1.ReasonScaling, says: pod + " is being deleted"},
		"it is not wanted, and going": {so: func(w *World) { w.surplus(); deleted(w.member().Pod.Is) }, row: "surplus, being deleted", address: "slice unchanged",
			state: v1alpha1.GroupScaling, reason: v1alpha1.ReasonScaling, says: "is being deleted"},
		"it is not wanted, and bound nowhere": {so: func(w *World) { w.surplus(); w.member().Slice.Is, w.member().Target = nil, nil }, row: "surplus", do: Delete, address: "no address",
			state: v1alpha1.GroupScaling, reason: v1alpha1.ReasonScaling},
		"it is not wanted, and its Service is left": {so: func(w *World) { w.surplus(); w.lacks() }, row: "surplus, gone", address: "surplus, Service left", doAddress: Delete, state: "-"},
		"it is not wanted, and its slice is left":   {so: func(w *World) { w.surplus(); w.lacks(); w.member().Service.Is = nil }, row: "surplus, gone", address: "surplus, slice left", doAddress: Delete, state: "-"},
		"it is not wanted, and all is going": {so: func(w *World) {
			w.surplus()
			w.lacks()
			deleted(w.member().Service.Is)
			deleted(w.member().Slice.Is)
		}, row: "surplus, gone", address: "nothing left", state: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			c.so(w)
			steps := Decide(w)
			require.Len(t, steps, 2)
			address, pod := steps[0], steps[1]
			assert.Equal(t, []string{c.address, c.row}, []string{address.Row, pod.Row})
			assert.Equal(t, []Action{c.doAddress, c.do}, []Action{address.Do, pod.Do})
			assert.Equal(t, c.again, max(address.Again, pod.Again))
			if c.checkSlice != nil {
				c.checkSlice(t, address.Object.(*discoveryv1.EndpointSlice))
			}
			groups := groupsOf(w, steps)
			if c.state == "-" {
				assert.Empty(t, groups)
				return
			}
			require.Len(t, groups, 1)
			want := c.state
			if want == "" {
				want = v1alpha1.GroupRunning
			}
			assert.Equal(t, []string{"llama-0", string(want), c.reason}, []string{groups[0].Name, string(groups[0].State), groups[0].Reason})
			assert.Contains(t, groups[0].Message, c.says)
		})
	}
}

func TestTheTablesOfTheDocumentHaveTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	var written, coded []string
	text, _, _ = bytes.Cut(text, []byte("## Rollout\n")) // whose table is of another package
	for _, table := range regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(table[1]) {
			written = append(written, strings.TrimSpace(strings.Split(line, "|")[1]))
		}
	}
	for _, r := range slices.Concat(pods, addresses) {
		coded = append(coded, r.row)
	}
	for _, r := range ranks {
		coded = append(coded, r.row)
	}
	assert.Equal(t, append(coded, rowEarlierRevision, "create revision", "note replicas", "unused revision"), written, "in this order: the first that fits counts")
}

func TestDeletedModelServingIsLeftToKubernetes(t *testing.T) {
	w := world()
	w.lacks()
	deleted(w.Serving)
	assert.Empty(t, Decide(w), "nothing is created again")
}

func TestRevisionStaysWhileAPodWasMadeFromIt(t *testing.T) {
	w := world()
	revisions := func() (names []string) {
		for _, s := range w.revisions() {
			names = append(names, fmt.Sprintf("%s %s", s.Row, s.Object.GetName()))
		}
		return names
	}
	assert.Empty(t, revisions())
	first := w.Revision
	w.Serving.Spec.Template.Roles[0].EntryTemplate.Raw = []byte(plainEntry)
	w.Revision = hash(content(&w.Serving.Spec.Template))
	require.NotEqual(t, first, w.Revision)
	assert.Equal(t, []string{"create revision llama-" + w.Revision}, revisions())
	second := w.newRevision()
	assert.EqualValues(t, 2, second.Revision)
	w.Unheard = true
	assert.Empty(t, revisions(), "it was just created")
	w.Unheard, w.Revisions = false, append(w.Revisions, second)
	assert.Empty(t, revisions(), "the Pod is of the first one")
	w.lacks()
	assert.Equal(t, []string{"unused revision llama-" + first}, revisions())
}

func TestRevisionIsTheSameForOtherNumbersOfReplicas(t *testing.T) {
	a, b := llama(), llama()
	b.Spec.Replicas, b.Spec.Template.Roles[0].Replicas = new(int32(5)), new(int32(3))
	assert.Equal(t, content(&a.Spec.Template), content(&b.Spec.Template))
	assert.Equal(t, roleHash(&a.Spec.Template.Roles[0]), roleHash(&b.Spec.Template.Roles[0]))
	b.Spec.Template.Roles[0].EntryTemplate.Raw = []byte(plainEntry)
	assert.NotEqual(t, content(&a.Spec.Template), content(&b.Spec.Template))
	assert.NotEqual(t, roleHash(&a.Spec.Template.Roles[0]), roleHash(&b.Spec.Template.Roles[0]))
}

func TestStatusCountsGroupsAndNamesTheGravest(t *testing.T) {
	w := world()
	w.Serving.Spec.Replicas = new(int32(3))
	running := w.member()
	taken, starts := *running, *running
	taken.group, starts.group = 1, 2
	taken.Pod, starts.Pod = Held[*corev1.Pod]{Other: Stranger}, Held[*corev1.Pod]{}
	w.Members = []*Member{running, &starts, &taken}
	var s v1alpha1.ModelServingStatus
	show(w, Decide(w), &s)
	assert.EqualValues(t, 3, s.ObservedGeneration)
	assert.Equal(t, []int32{1, 1}, []int32{s.Replicas, s.ReadyReplicas})
	assert.Equal(t, "modelserving.hotseat.dev/entry=true,modelserving.hotseat.dev/name=llama", s.Selector)
	require.Len(t, s.Groups, 3)
	assert.Equal(t, []v1alpha1.ServingGroupState{v1alpha1.GroupRunning, v1alpha1.GroupFailed, v1alpha1.GroupProgressing}, []v1alpha1.ServingGroupState{s.Groups[0].State, s.Groups[1].State, s.Groups[2].State})
	available, progressing := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProgressing)
	assert.Equal(t, v1alpha1.ReasonNameTaken, available.Reason)
	assert.Contains(t, available.Message, "1 of 3 groups run; llama-1: Pod llama-1-prefill-0-0 exists")
	assert.Equal(t, []string{"True", v1alpha1.ReasonStarting}, []string{string(progressing.Status), progressing.Reason})

	w.Serving.Spec.Replicas, w.Members = new(int32(0)), nil
	show(w, Decide(w), &s)
	assert.Empty(t, s.Groups)
	available = meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable)
	assert.Equal(t, []string{"True", v1alpha1.ReasonNoneNeeded}, []string{string(available.Status), available.Reason})
	assert.True(t, meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionProgressing))
}

func TestPodTellsTheRequesterOfItsGroup(t *testing.T) {
	w := world()
	w.groups[0].templates[0].entry.Labels = map[string]string{"app": "llama", podmeta.LabelServing: "forged"}
	pod := w.newPod(place{"llama", 2, "prefill", 0, 3, 0})
	assert.Equal(t, "llama-2-prefill-3-0", pod.Name)
	assert.Equal(t, map[string]string{
		"app": "llama", podmeta.LabelServing: "llama", podmeta.LabelServingGroup: "llama-2", podmeta.LabelServingRole: "prefill", podmeta.LabelServingRoleID: "prefill-3",
		podmeta.LabelServingEntry: "true", podmeta.LabelServingRevision: w.Revision, podmeta.LabelRoleTemplateHash: roleHash(&w.Serving.Spec.Template.Roles[0]), podmeta.LabelManagedBy: podmeta.ManagedBy,
	}, pod.Labels)
	owner := podmeta.ServingOf(pod)
	assert.Equal(t, []any{types.UID("s"), true}, []any{owner.UID, *owner.BlockOwnerDeletion})
	assert.Empty(t, pod.Spec.Containers[0].Env, "a container beside the requester program")
	assert.Equal(t, []corev1.EnvVar{
		{Name: "GROUP_SIZE", Value: "1"}, {Name: "ENTRY_ADDRESS", Value: "llama-2-prefill-3-0.ns.svc"}, {Name: "WORKER_INDEX", Value: "0"}, {Name: "A", Value: "$(ENTRY_ADDRESS)"},
	}, pod.Spec.Containers[1].Env, "first, so that others can refer to them")
}

func TestPlainPodGetsTheEnvironmentInAllContainers(t *testing.T) {
	w := world()
	w.Serving.Spec.Template.Roles[0].EntryTemplate.Raw = []byte(plainEntry)
	require.Empty(t, w.planned("requester"))
	w.groups[0].templates[0].entry.Spec.InitContainers = []corev1.Container{{Name: "first", Env: []corev1.EnvVar{{Name: "GROUP_SIZE", Value: "9"}}}}
	pod := w.newPod(w.member().place)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		require.Len(t, c.Env, 3, c.Name)
		assert.Equal(t, corev1.EnvVar{Name: "GROUP_SIZE", Value: "1"}, c.Env[0])
	}
	ports := portsOfPod(pod)
	require.Len(t, ports, 1, "peers look ports up by name")
	assert.Equal(t, []any{"http", int32(80)}, []any{*ports[0].Name, *ports[0].Port})
}

func TestRoleWithAnInferenceServerConfigGetsRequesters(t *testing.T) {
	w := world()
	w.Serving.Spec.Template.Roles[0] = v1alpha1.ServingRole{Name: "prefill", InferenceServerConfig: "llama", GPUs: new(int32(2))}
	require.Empty(t, w.planned("registry/requester:1"))
	pod := w.newPod(w.member().place)
	read, wrong := podmeta.ReadRequester(pod)
	require.Empty(t, wrong)
	assert.Equal(t, []any{podmeta.InputConfig, "llama", 2, true}, []any{read.Input, read.ConfigName, read.GPUs, read.TLS})
	program := podmeta.ProgramOf(pod).Container
	assert.Equal(t, "registry/requester:1", program.Image)
	assert.NotNil(t, program.ReadinessProbe)
	assert.Len(t, program.Env, 3)
}

func TestPlaceIsReadFromItsNameAlone(t *testing.T) {
	serving := llama()
	serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, v1alpha1.ServingRole{Name: "prefill-0"})
	for name, want := range map[string]place{
		"llama-0-prefill-0-0":    {"llama", 0, "prefill", 0, 0, 0},
		"llama-0-prefill-0-11":   {"llama", 0, "prefill", 0, 0, 11},
		"llama-12-prefill-0-3-0": {"llama", 12, "prefill-0", 1, 3, 0},
		"llama-1-decode-0-0":     {"llama", 1, "decode", -1, 0, 0},
	} {
		got, ok := placeOf(serving, name)
		assert.True(t, ok, name)
		assert.Equal(t, want, got)
		assert.Equal(t, name, got.name())
	}
	for _, name := range []string{"llama", "llama-0", "llama-0-prefill-0", "llama-00-prefill-0-0", "llama-0-prefill-0-01", "llama-x-prefill-0-0", "other-0-prefill-0-0", "llama--1-prefill-0-0"} {
		_, ok := placeOf(serving, name)
		assert.False(t, ok, name)
	}
}
