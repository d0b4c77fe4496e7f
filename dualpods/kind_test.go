package dualpods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// asking returns a Pod that asks for an inference server.
func asking(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func without(key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { delete(pod.Labels, key) }
}

func finalizer(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, name) }
}

func isGated(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
}

func asks(pod *corev1.Pod) { pod.Annotations = asking().Annotations }

// TestKindOfPod has a Pod for each rule by which binding, placement, the pool of launchers and
// others tell Pods apart.
func TestKindOfPod(t *testing.T) {
	config, set := owner("LauncherConfig", "vllm", "config"), owner("DaemonSet", "vllm-launcher", "set")
	none := owner("LauncherConfig", "none", "none")
	ofNone := labelled(podmeta.LabelLauncherConfig, "none")
	held, bound := finalizer(podmeta.FinalizerRequester), finalizer(podmeta.FinalizerProvider)
	const (
		other, requester, gated, launcher, orphan = dualpods.KindOther, dualpods.KindRequester, dualpods.KindGated, dualpods.KindLauncher, dualpods.KindOrphan
	)
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		kind, looks dualpods.Kind
		config      string // of a launcher
	}{
		"the LauncherConfig owns it":                          {made(config), launcher, launcher, "vllm"},
		"its DaemonSet owns it":                               {made(set), launcher, launcher, "vllm"},
		"a launcher is bound":                                 {made(config, bound), launcher, launcher, "vllm"},
		"a launcher lacks a label that selects no launcher":   {made(config, without(podmeta.LabelManagedBy)), launcher, launcher, "vllm"},
		"a launcher has the annotations of a requester":       {made(config, asks), launcher, launcher, "vllm"},
		"a launcher has the gate of a requester":              {made(config, asks, isGated), launcher, launcher, "vllm"},
		"it has the labels alone":                             {made(nil), other, launcher, ""},
		"its owner has another UID":                           {made(owner("LauncherConfig", "vllm", "made up")), other, launcher, ""},
		"its owner does not control it":                       {made(&metav1.OwnerReference{Kind: "LauncherConfig", Name: "vllm", UID: "config"}), other, launcher, ""},
		"its DaemonSet is somebody else's":                    {made(owner("DaemonSet", "bare-launcher", "theirs"), labelled(podmeta.LabelLauncherConfig, "bare")), other, launcher, ""},
		"it has the label of another LauncherConfig":          {made(config, labelled(podmeta.LabelLauncherConfig, "bare")), other, launcher, ""},
		"it is of another namespace":                          {made(config, func(pod *corev1.Pod) { pod.Namespace = "other" }), other, launcher, ""},
		"there is no such LauncherConfig":                     {made(none, ofNone), other, launcher, ""},
		"it is bound, and its LauncherConfig is gone":         {made(none, ofNone, bound), orphan, launcher, ""},
		"it is bound, and nobody owns it":                     {made(nil, bound), orphan, launcher, ""},
		"a launcher has no labels":                            {made(config, bound, func(pod *corev1.Pod) { pod.Labels = nil }), other, other, ""},
		"a launcher has another component":                    {made(config, labelled(podmeta.LabelComponent, "agent")), other, other, ""},
		"it asks for an inference server":                     {asking(), requester, requester, ""},
		"it asks by the other spelling":                       {asking(func(pod *corev1.Pod) { pod.Annotations = map[string]string{podmeta.PrefixAlias + "server-patch": "{}"} }), requester, requester, ""},
		"a requester has the labels of a launcher":            {made(nil, asks), requester, launcher, ""},
		"a requester waits for its placement":                 {asking(isGated), gated, gated, ""},
		"a requester with a launcher's labels waits for it":   {made(nil, asks, isGated), gated, launcher, ""},
		"a requester waits for it, and the controller has it": {asking(isGated, held), requester, requester, ""},
		"the controller has a requester without annotations":  {asking(held, func(pod *corev1.Pod) { pod.Annotations = nil }), requester, requester, ""},
		"the controller has a requester with all labels":      {made(config, held), requester, requester, ""},
		"it waits for placement and asks for nothing":         {asking(isGated, func(pod *corev1.Pod) { pod.Annotations = nil }), other, other, ""},
		"it asks for nothing":                                 {&corev1.Pod{}, other, other, ""},
	} {
		t.Run(name, func(t *testing.T) {
			launchers := dualpods.NewLaunchers(poolAPI(t).Build())
			for range 2 { // the second answer is known already
				kind, of, err := launchers.KindOf(t.Context(), c.pod)
				require.NoError(t, err)
				assert.Equal(t, c.kind, kind)
				assert.Equal(t, c.looks, dualpods.LooksLike(c.pod))
				assert.Equal(t, c.looks == launcher, dualpods.ConfigName(c.pod) != "")
				if c.config == "" {
					assert.Nil(t, of)
				} else if assert.NotNil(t, of) {
					assert.Equal(t, c.config, of.Name)
				}
				among, err := launchers.Among(t.Context(), []corev1.Pod{*c.pod})
				require.NoError(t, err)
				assert.Equal(t, kind == launcher || kind == orphan, len(among) == 1)
			}
		})
	}
}

func TestLauncherIsReplacedWhenItsLauncherConfigIsThere(t *testing.T) {
	bare := labelled(podmeta.LabelLauncherConfig, "bare")
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		exists bool
	}{
		"its DaemonSet was made anew":       {made(owner("DaemonSet", "vllm-launcher", "earlier")), true},
		"its DaemonSet is somebody else's":  {made(owner("DaemonSet", "bare-launcher", "theirs"), bare), true},
		"its LauncherConfig was made anew":  {made(owner("LauncherConfig", "vllm", "earlier")), false},
		"its DaemonSet has another name":    {made(owner("DaemonSet", "other-launcher", "other")), false},
		"it is of another namespace":        {made(owner("DaemonSet", "vllm-launcher", "set"), func(pod *corev1.Pod) { pod.Namespace = "other" }), false},
		"nobody owns it":                    {made(nil), false},
		"there is no LauncherConfig of its": {made(owner("DaemonSet", "none-launcher", "none"), labelled(podmeta.LabelLauncherConfig, "none")), false},
	} {
		exists, err := dualpods.NewLaunchers(poolAPI(t).Build()).ConfigExists(t.Context(), c.pod)
		require.NoError(t, err)
		assert.Equal(t, c.exists, exists, name)
	}
}

func TestRequesterLeavesWhenDeletedFinishedOrEnding(t *testing.T) {
	unready := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason}}
		}
	}
	phase := func(is corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = is }
	}
	for name, c := range map[string]struct {
		pod          *corev1.Pod
		leaves, over bool
	}{
		"it runs":                {asking(phase(corev1.PodRunning)), false, false},
		"it is not ready":        {asking(unready("ContainersNotReady")), false, false},
		"it waits for placement": {asking(isGated), false, false},
		"it is deleted":          {asking(isDeleted), true, true},
		"it has failed":          {asking(phase(corev1.PodFailed)), true, true},
		"it has succeeded":       {asking(phase(corev1.PodSucceeded)), true, true},
		"the kubelet ends it":    {asking(phase(corev1.PodRunning), unready("PodFailed")), true, false},
		"it is deleted and ends": {asking(isDeleted, unready("PodFailed")), true, true},
	} {
		r := dualpods.RequesterOf(c.pod)
		assert.Equal(t, c.leaves, r.Leaves(false), name)
		assert.Equal(t, c.over, r.IsOver(), name)
		assert.True(t, r.Leaves(true), "%s, and its node is gone", name)
	}
}

func TestLauncherHasEndedOrLeaves(t *testing.T) {
	hasFailed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	crashed := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, RestartCount: 1, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	}
	pulling := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		lostFor time.Duration
		stage   dualpods.Stage
		ended   bool
	}{
		"it works":                         {launcherNamed("l", 0), 0, dualpods.Working, false},
		"it was lost a moment ago":         {launcherNamed("l", 0), time.Second, dualpods.Working, false},
		"it has been silent for long":      {launcherNamed("l", 0), dualpods.LauncherPatience, dualpods.Silent, false},
		"it is starting":                   {launcherNamed("l", 0, isStarting), dualpods.LauncherPatience, dualpods.Starting, false},
		"its image is being pulled":        {launcherNamed("l", 0, pulling), 0, dualpods.Starting, false},
		"its container has ended":          {launcherNamed("l", 0, isDown), 0, dualpods.Down, true},
		"its container is to start again":  {launcherNamed("l", 0, crashed), 0, dualpods.Down, true},
		"it is being deleted":              {launcherNamed("l", 0, isDeleted), 0, dualpods.Leaving, false},
		"it is being deleted, and is down": {launcherNamed("l", 0, isDeleted, isDown), 0, dualpods.Leaving, true},
		"its Pod has ended":                {launcherNamed("l", 0, hasFailed), 0, dualpods.Leaving, true},
	} {
		p := dualpods.ProviderOf(c.pod, c.lostFor)
		assert.Equal(t, c.stage, p.Stage, name)
		assert.Equal(t, c.ended, p.Ended, name)
	}
}

func TestLauncherThatServesARequesterLacksNothing(t *testing.T) {
	need := func(changes ...func(*dualpods.LauncherNeed)) *dualpods.LauncherNeed {
		n := &dualpods.LauncherNeed{Namespace: "ns"}
		for _, change := range changes {
			change(n)
		}
		return n
	}
	image := func(name string) func(*dualpods.LauncherNeed) {
		return func(n *dualpods.LauncherNeed) { n.Image = name }
	}
	config := func(name string) func(*dualpods.LauncherNeed) {
		return func(n *dualpods.LauncherNeed) { n.Config = name }
	}
	mount := func(n *dualpods.LauncherNeed) {
		n.Mounts = []dualpods.Mount{{Field: "spec.x", Path: "/data", Source: data(nil)}}
	}
	elsewhere := func(n *dualpods.LauncherNeed) { n.Namespace = "elsewhere" }
	const noImage = "spec.containers[inference-server].image: is vllm:2, and the launcher's is vllm:1: name another LauncherConfig, or leave the image out"
	const noMount = "spec.x: the launcher has not mounted that volume there: let the podTemplate of the LauncherConfig mount it"
	for name, c := range map[string]struct {
		need   *dualpods.LauncherNeed
		pod    *corev1.Pod
		serves bool
		lacks  string
	}{
		"nothing is asked for":                      {need(), launcherNamed("l", 0), true, ""},
		"its LauncherConfig is named":               {need(config("vllm")), launcherNamed("l", 0), true, ""},
		"another LauncherConfig is named":           {need(config("other")), launcherNamed("l", 0), false, ""},
		"it has the image":                          {need(image("vllm:1")), launcherNamed("l", 0), true, ""},
		"it has another image":                      {need(image("vllm:2")), launcherNamed("l", 0), false, noImage},
		"it is named, and has another image":        {need(config("vllm"), image("vllm:2")), launcherNamed("l", 0), false, noImage},
		"it has the mount":                          {need(mount), launcherNamed("l", 0, hasData), true, ""},
		"it lacks the mount":                        {need(mount), launcherNamed("l", 0), false, noMount},
		"it lacks the mount and has another image":  {need(config("vllm"), image("vllm:2"), mount), launcherNamed("l", 0), false, noImage + "; " + noMount},
		"the requester is of another namespace":     {need(elsewhere), launcherNamed("l", 0), false, ""},
		"its template has no container of the name": {need(), made(nil), false, "spec.podTemplate.spec.containers: none is named inference-server: the LauncherConfig should have one with vLLM in it"},
	} {
		p := dualpods.ProviderOf(c.pod, 0)
		assert.Equal(t, c.serves, p.CanServe(c.need), name)
		assert.Equal(t, c.lacks, podmeta.Join(c.need.Lacks(&c.pod.Spec)), name)
		assert.Equal(t, c.lacks == "", c.need.Fits(&c.pod.Spec), name)
	}
}

func TestRecordIsOfTheRequesterOfItsNamespace(t *testing.T) {
	record := podmeta.Binding{Namespace: "ns", RequesterUID: "uid"}
	assert.Equal(t, dualpods.Identity{Namespace: "ns", UID: types.UID("uid")}, dualpods.IdentityIn(&record))
	assert.Equal(t, dualpods.IdentityIn(&record), dualpods.IdentityOf(asking(func(p *corev1.Pod) { p.UID = "uid" })))
}
