package podgroups

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// site is a controller with the ModelServing sample.
type site struct {
	t          *testing.T
	c          *Controller
	api        client.Client
	events     *events.FakeRecorder
	definition Definition
}

func newSite(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), volcano.AddToScheme(scheme)))
	serving := sample(nil)
	s := &site{t: t, events: events.NewFakeRecorder(20), definition: Definition{Subgroups: true}}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, serving)...).WithStatusSubresource(serving).
		WithIndex(&appsv1.ControllerRevision{}, groups.Index, groups.Indexed).WithIndex(&corev1.Pod{}, groups.Index, groups.Indexed).Build()
	s.c = New(Options{API: s.api, Live: s.api, Recorder: s.events, Definition: func() (Definition, error) { return s.definition, nil }})
	return s
}

func (s *site) serving() *v1alpha1.ModelServing {
	s.t.Helper()
	var is v1alpha1.ModelServing
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "sample"}, &is))
	return &is
}

// pass runs a pass. It returns when to look again, and the reason of the condition; empty: there is
// no condition.
func (s *site) pass() (again time.Duration, reason string) {
	s.t.Helper()
	result, err := s.c.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "sample"}})
	require.NoError(s.t, err)
	if told := meta.FindStatusCondition(s.serving().Status.Conditions, v1alpha1.ConditionPodGroups); told != nil {
		reason = told.Reason
	}
	return result.RequeueAfter, reason
}

func (s *site) podGroups() (all []volcano.PodGroup) {
	s.t.Helper()
	var list volcano.PodGroupList
	require.NoError(s.t, s.api.List(s.t.Context(), &list))
	return list.Items
}

func TestPodGroupComesAndGoesWithVolcano(t *testing.T) {
	s := newSite(t)
	s.definition = Definition{Lacking: true}
	again, reason := s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, v1alpha1.ReasonNoVolcano, reason)
	assert.Contains(t, <-s.events.Events, "install Volcano")

	s.definition = Definition{}
	again, reason = s.pass()
	assert.Equal(t, restPause, again)
	assert.Equal(t, v1alpha1.ReasonPodGroupsCreated, reason)
	require.Len(t, s.podGroups(), 1)
	version := s.podGroups()[0].ResourceVersion
	s.pass()
	assert.Equal(t, version, s.podGroups()[0].ResourceVersion, "a pass at rest writes nothing")

	changed := s.serving()
	changed.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}}
	require.NoError(t, s.api.Update(t.Context(), changed))
	s.pass()
	assert.Equal(t, int32(10), s.podGroups()[0].Spec.MinMember)

	changed = s.serving()
	changed.Spec.SchedulerName = ""
	require.NoError(t, s.api.Update(t.Context(), changed))
	_, reason = s.pass()
	assert.Empty(t, reason)
	assert.Empty(t, s.podGroups())
	again, _ = s.pass()
	assert.Zero(t, again, "the ModelServing is of no concern any more")
}

func TestPodGroupOfOthersIsToldAndLeftAlone(t *testing.T) {
	theirs := &volcano.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sample-0"}, Spec: volcano.PodGroupSpec{MinMember: 1}}
	s := newSite(t, theirs)
	again, reason := s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, v1alpha1.ReasonNameTaken, reason)
	require.Len(t, s.podGroups(), 1)
	assert.Equal(t, int32(1), s.podGroups()[0].Spec.MinMember)
	assert.Contains(t, <-s.events.Events, "PodGroup sample-0 exists and was not created for this ModelServing")
}

func TestPodGroupWithoutItsLabelGetsItAgain(t *testing.T) {
	s := newSite(t)
	s.pass()
	group := s.podGroups()[0]
	group.Labels = map[string]string{"theirs": "stays", podmeta.LabelServing: "another"}
	group.Spec.MinMember = 1
	require.NoError(t, s.api.Update(t.Context(), &group))
	again, _ := s.pass()
	assert.Equal(t, membersPause, again, "it looks again soon")
	s.pass()
	require.Len(t, s.podGroups(), 1)
	group = s.podGroups()[0]
	assert.Equal(t, []string{"stays", "sample", "sample-0"}, []string{group.Labels["theirs"], group.Labels[podmeta.LabelServing], group.Labels[podmeta.LabelServingGroup]})
	assert.Equal(t, int32(16), group.Spec.MinMember, "so it is found, and is as it should be again")
	_, reason := s.pass()
	assert.Equal(t, v1alpha1.ReasonPodGroupsCreated, reason)
}

func TestNothingIsWrittenIntoANamespaceThatGoes(t *testing.T) {
	s := newSite(t)
	s.c.opts.API = goingNamespace{s.api}
	again, reason := s.pass()
	assert.Zero(t, again)
	assert.Empty(t, reason)
	assert.Empty(t, s.events.Events)
}

// goingNamespace is an API server whose namespaces are being deleted.
type goingNamespace struct{ client.Client }

func (goingNamespace) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	refused := apierrors.NewForbidden(volcano.Resource("podgroups"), o.GetName(), errors.New("the namespace is being deleted"))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return refused
}

func TestProcessThatDoesNotLeadWritesNothing(t *testing.T) {
	s := newSite(t)
	s.c.opts.Leads = func() bool { return false }
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "sample"}})
	require.ErrorIs(t, err, dualpods.ErrNotLeading)
	assert.Empty(t, s.podGroups())
}

// schemas is an API server that has some documents, by their paths.
type schemas map[string]string

func (s schemas) OpenAPIV3() openapi.Client { return s }

func (s schemas) Paths() (map[string]openapi.GroupVersion, error) {
	all := map[string]openapi.GroupVersion{}
	for path, text := range s {
		all[path] = document3(text)
	}
	return all, nil
}

type document3 string

func (d document3) Schema(string) ([]byte, error) { return []byte(d), nil }

func (d document3) SchemaWithContext(context.Context, string) ([]byte, error) { return []byte(d), nil }
func (d document3) ServerRelativeURL() string                                 { return "" }

func TestDefinitionIsReadOfTheSchema(t *testing.T) {
	const path = "apis/scheduling.volcano.sh/v1beta1"
	podGroup := func(fields string) string {
		return `{"components": {"schemas": {"x": {"x-kubernetes-group-version-kind": [{"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"}], "properties": {"spec": {"properties": {` + fields + `}}}}}}}`
	}
	for name, c := range map[string]struct {
		has  schemas
		want Definition
	}{
		"no Volcano":     {schemas{"apis/apps/v1": "{}"}, Definition{Lacking: true}},
		"only queues":    {schemas{path: `{"components": {"schemas": {}}}`}, Definition{Lacking: true}},
		"an older one":   {schemas{path: podGroup(`"minMember": {}`)}, Definition{}},
		"1.14 and later": {schemas{path: podGroup(`"minMember": {}, "subGroupPolicy": {}`)}, Definition{Subgroups: true}},
		"those of Kubernetes": {schemas{"apis/scheduling.k8s.io/v1beta1": `{"components": {"schemas": {"x": {"x-kubernetes-group-version-kind": [{"group": "scheduling.k8s.io", "version": "v1beta1", "kind": "PodGroup"}]}}}}`},
			Definition{Lacking: true, Kubernetes: true}},
		"Kubernetes without PodGroups": {schemas{"apis/scheduling.k8s.io/v1beta1": `{"components": {"schemas": {}}}`}, Definition{Lacking: true}},
	} {
		now := time.Unix(1000, 0)
		read := ReadDefinition(c.has, func() time.Time { return now })
		is, err := read()
		require.NoError(t, err, name)
		assert.Equal(t, c.want, is, name)
		delete(c.has, path)
		is, err = read()
		require.NoError(t, err, name)
		assert.Equal(t, c.want, is, "%s: the answer counts for a while", name)
		now = now.Add(definitionAge)
		is, err = read()
		require.NoError(t, err, name)
		assert.True(t, is.Lacking, "%s: and is asked for anew", name)
		assert.Equal(t, c.want.Kubernetes, is.Kubernetes, name)
	}
	broken := ReadDefinition(schemas{path: "no JSON"}, time.Now)
	_, err := broken()
	assert.ErrorContains(t, err, "schema of PodGroups")
}
