package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestLauncherIsBurstableUnlessItsTemplateSaysOtherwise(t *testing.T) {
	with := func(resources string) string { return plain + "      resources: " + resources + "\n" }
	for name, c := range map[string]struct {
		spec     string
		requests map[string]string
	}{
		"the template says nothing":           {plain, map[string]string{"cpu": "100m", "memory": "256Mi"}},
		"it says the memory":                  {with("{requests: {memory: 200Gi}}"), map[string]string{"cpu": "100m", "memory": "200Gi"}},
		"it says a limit, which is a request": {with("{limits: {memory: 200Gi}}"), map[string]string{"cpu": "100m"}},
		"it says both":                        {with("{requests: {cpu: 8, memory: 200Gi}}"), map[string]string{"cpu": "8", "memory": "200Gi"}},
		"it says what the Pod requests":       {plain + "    resources: {requests: {memory: 200Gi}}\n", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			made, problems := Template(configOf(t, c.spec), image, "tls", nil, "")
			require.Empty(t, problems)
			requests := map[string]string{}
			for name, q := range podmeta.Container(&made.Spec, podmeta.ServingContainer).Resources.Requests {
				requests[string(name)] = q.String()
			}
			assert.Equal(t, c.requests, requests)
		})
	}
}

func TestConditionSaysWhetherLaunchersAreEvictedFirst(t *testing.T) {
	class := func(name string, value int32) client.Object {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	const named = plain + "    priorityClassName: theirs\n"
	for name, c := range map[string]struct {
		spec    string
		ours    string
		classes []client.Object
		class   string // of the template
		status  metav1.ConditionStatus
		reason  string
		says    string
	}{
		"the chart's class":           {plain, "ours", []client.Object{class("ours", 1000000)}, "ours", metav1.ConditionTrue, v1alpha1.ReasonPrioritized, "PriorityClass ours has priority 1000000"},
		"the chart's class is gone":   {plain, "ours", nil, "", metav1.ConditionFalse, v1alpha1.ReasonNoPriority, "with all that sleeps in them, as soon as ordinary Pods: name a PriorityClass in spec.podTemplate.spec.priorityClassName, or let the chart create one (launcherPriority.create)"},
		"the chart has none":          {plain, "", nil, "", metav1.ConditionFalse, v1alpha1.ReasonNoPriority, "as soon as ordinary Pods"},
		"the template names another":  {named, "ours", []client.Object{class("ours", 1000000), class("theirs", 7)}, "theirs", metav1.ConditionTrue, v1alpha1.ReasonPrioritized, "PriorityClass theirs has priority 7"},
		"one that is missing":         {named, "ours", []client.Object{class("ours", 1000000)}, "theirs", metav1.ConditionUnknown, v1alpha1.ReasonMalformedTemplate, "the condition Accepted says what to correct"},
		"one below that of all Pods":  {named, "", []client.Object{class("theirs", -1)}, "theirs", metav1.ConditionFalse, v1alpha1.ReasonNoPriority, "the priority of PriorityClass theirs is -1: name one with a priority above 0"},
		"the template cannot be used": {"podTemplate: {spec: {containers: []}}", "ours", nil, "", metav1.ConditionUnknown, v1alpha1.ReasonMalformedTemplate, "the condition Accepted says what to correct"},
	} {
		t.Run(name, func(t *testing.T) {
			pool, config, _ := poolOf(t, v1alpha1.OnDemand, c.classes...)
			pool.opts.PriorityClass = c.ours
			spec := configOf(t, c.spec).Spec
			var edited v1alpha1.LauncherConfig
			require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &edited))
			config.Spec.PodTemplate, edited.Spec.PodTemplate = spec.PodTemplate, spec.PodTemplate
			require.NoError(t, pool.opts.API.Update(t.Context(), &edited))
			template, _, _, err := pool.template(t.Context(), config)
			require.NoError(t, err)
			assert.Equal(t, c.class, template.Spec.PriorityClassName)
			pool.look(t, config)
			var now v1alpha1.LauncherConfig
			require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &now))
			told := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionProtectedFromEviction)
			require.NotNil(t, told)
			assert.Equal(t, c.status, told.Status)
			assert.Equal(t, c.reason, told.Reason)
			assert.Contains(t, told.Message, c.says)
		})
	}
}

func TestMissingPriorityClassIsAProblemUntilItIsThere(t *testing.T) {
	pool, config, _ := poolOf(t, v1alpha1.PerNode)
	config.Spec.PodTemplate = configOf(t, plain+"    priorityClassName: theirs\n").Spec.PodTemplate
	_, _, problems, err := pool.template(t.Context(), config)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	assert.Equal(t, "spec.podTemplate.spec.priorityClassName", problems[0].Field)
	assert.Equal(t, "there is no PriorityClass theirs: create it, or name another one", problems[0].Message)
	require.NoError(t, pool.opts.API.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Value: 7}))
	_, _, problems, err = pool.template(t.Context(), config)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestTemplateWithItsOwnPriorityGetsNoPriorityClass(t *testing.T) {
	made, _ := Template(configOf(t, plain+"    priority: 5\n"), image, "tls", nil, "ours")
	assert.Empty(t, made.Spec.PriorityClassName, "the API server would refuse both")
}
