package chart

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"hotseat.dev/hotseat/spec/podmeta"
)

// denies evaluates a validating policy of the chart as the API server does, for a user without rights. It returns the
// messages of the validations that refuse.
func denies(t *testing.T, template, by string, object, old runtime.Object) (messages []string) {
	t.Helper()
	policy := decode[admissionv1.ValidatingAdmissionPolicy](t, render(t, template, nil, nil)[0])
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for i := range policy.Spec.Variables {
		v := validating.Variable(policy.Spec.Variables[i])
		compiled := compiler.CompileAndStoreVariable(&v, options, environment.NewExpressions)
		require.Nil(t, compiled.Error, v.Name)
	}
	kind := object.GetObjectKind().GroupVersionKind()
	resource := map[string]string{"Pod": "pods", "ReplicaSet": "replicasets", "Deployment": "deployments"}[kind.Kind]
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	attributes := admission.NewAttributesRecord(object, old, kind, "ns", "x", schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, "", operation, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: by, Groups: []string{"system:authenticated"}})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(object)}
	if old != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(old)
	}
	ctx := compiler.CreateContext(t.Context())
	var conditions []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	nobody := authorizer.AuthorizerFunc(noRight)
	matches := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, environment.NewExpressions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name).Match(ctx, versioned, nil, nobody)
	require.NoError(t, matches.Error)
	if !matches.Matches {
		return nil
	}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(attributes.GetResource()), metav1.GroupVersionKind(kind))
	for _, v := range policy.Spec.Validations {
		evaluate := func(of cel.ExpressionAccessor) any {
			results, _, err := compiler.CompileCondition([]cel.ExpressionAccessor{of}, options, environment.NewExpressions).ForInput(ctx, versioned, request, cel.OptionalVariableBindings{Authorizer: nobody}, nil, celconfig.RuntimeCELCostBudget)
			require.NoError(t, err)
			require.NoError(t, results[0].Error)
			return results[0].EvalResult.Value()
		}
		if evaluate(&validating.ValidationCondition{Expression: v.Expression}) == true {
			continue
		}
		messages = append(messages, evaluate(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}).(string))
	}
	return messages
}

func TestOnlyTheControllerMakesPodsOfModels(t *testing.T) {
	const template = "policy-model-labels.yaml"
	labels := func(keys ...string) map[string]string {
		all := map[string]string{"app": "x"}
		for _, key := range keys {
			all[key] = "a"
		}
		return all
	}
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "a-a-1", UID: "u", Controller: new(true)}}
	}
	pod := func(owner string, keys ...string) *corev1.Pod {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels(keys...)}}
		if owner != "" {
			p.OwnerReferences = owned(owner)
		}
		return p
	}
	set := func(owner string, keys ...string) *appsv1.ReplicaSet {
		s := &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		s.Spec.Template.Labels = labels(keys...)
		if owner != "" {
			s.OwnerReferences = owned(owner)
		}
		return s
	}
	deployment := func(keys ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		d.Spec.Template.Labels = labels(keys...)
		return d
	}
	const kubernetes = "system:serviceaccount:kube-system:"
	mine := []string{podmeta.LabelModel, podmeta.LabelModelEntry}
	for name, made := range map[string]struct {
		by       string
		now, old runtime.Object
		refused  string // the label that is named; empty: it is taken
	}{
		"a Pod of anybody":                             {by: "user", now: pod("")},
		"a Pod with a Model's name":                    {by: "user", now: pod("", mine...), refused: podmeta.LabelModel},
		"a Pod with an entry's name":                   {by: "user", now: pod("", podmeta.LabelModelEntry), refused: podmeta.LabelModelEntry},
		"a Pod that says it is a seat":                 {by: "user", now: pod("", podmeta.LabelSeat), refused: podmeta.LabelSeat},
		"a Pod that says a ReplicaSet made it":         {by: "user", now: pod("ReplicaSet", mine...), refused: podmeta.LabelModel},
		"a Pod that becomes a Model's":                 {by: "user", old: pod(""), now: pod("", mine...), refused: podmeta.LabelModel},
		"a Pod that leaves its Model":                  {by: "user", old: pod("ReplicaSet", mine...), now: pod("ReplicaSet"), refused: podmeta.LabelModel},
		"another label of a Model's Pod":               {by: "user", old: pod("ReplicaSet", mine...), now: pod("ReplicaSet", append(mine, "team")...)},
		"a Pod of a ReplicaSet":                        {by: kubernetes + "replicaset-controller", now: pod("ReplicaSet", mine...)},
		"the same without ServiceAccounts":             {by: "system:kube-controller-manager", now: pod("ReplicaSet", mine...)},
		"a ReplicaSet that makes a seat":               {by: kubernetes + "replicaset-controller", now: pod("ReplicaSet", podmeta.LabelSeat), refused: podmeta.LabelSeat},
		"a Pod of a StatefulSet":                       {by: kubernetes + "statefulset-controller", now: pod("StatefulSet", mine...), refused: podmeta.LabelModel},
		"the controller's Pod":                         {by: "system:serviceaccount:hotseat-system:hotseat-controller", now: pod("", append(mine, podmeta.LabelSeat)...)},
		"a ReplicaSet that makes a Model's Pods":       {by: "user", now: set("Deployment", mine...), refused: podmeta.LabelModel},
		"a ReplicaSet of a Deployment":                 {by: kubernetes + "deployment-controller", now: set("Deployment", mine...)},
		"a ReplicaSet without a Deployment":            {by: kubernetes + "deployment-controller", now: set("", mine...), refused: podmeta.LabelModel},
		"a Deployment that makes a Model's Pods":       {by: "user", now: deployment(mine...), refused: podmeta.LabelModel},
		"a Deployment that is scaled or restarted":     {by: "user", old: deployment(mine...), now: deployment(mine...)},
		"a Deployment of anybody":                      {by: "user", now: deployment()},
		"a Deployment whose Pods become another one's": {by: "user", old: deployment(), now: deployment(podmeta.LabelModelEntry), refused: podmeta.LabelModelEntry},
	} {
		refused := denies(t, template, made.by, made.now, made.old)
		if made.refused == "" {
			assert.Empty(t, refused, name)
		} else if assert.Len(t, refused, 1, name) {
			assert.Contains(t, refused[0], "may write the label "+made.refused+",", name)
		}
	}
}

func TestOnlyTheControllerWritesWhichModelASeatHas(t *testing.T) {
	seat := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{podmeta.AnnotationSeat: "{}"}}}
	bare := seat.DeepCopy()
	bare.Annotations = nil
	assert.Equal(t, []string{"only the controller of hotseat or an administrator may write the annotation hotseat.dev/seat-model"}, denies(t, "policy.yaml", "user", seat, nil))
	assert.Equal(t, []string{"only the controller of hotseat or an administrator may write the annotation hotseat.dev/seat-model"}, denies(t, "policy.yaml", "user", seat, bare))
	assert.Equal(t, []string{"only the controller of hotseat or an administrator may remove the annotation hotseat.dev/seat-model"}, denies(t, "policy.yaml", "user", bare, seat))
}

// noRight says that nobody is an administrator.
func noRight(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}
