package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

const mutatingPolicies = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

func decode[T any](t *testing.T, text string) (of T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &of), text)
	return of
}

// requesterPolicy is the policy that adds to requesters what they lack, with the API server's
// own evaluation of its expressions.
type requesterPolicy struct {
	matches  matchconditions.Matcher
	patchers []patch.Patcher
	compiler *cel.CompositedCompiler
}

func newRequesterPolicy(t *testing.T) *requesterPolicy {
	t.Helper()
	policy := decode[admissionv1.MutatingAdmissionPolicy](t, render(t, "policy-requesters.yaml", apiVersions{mutatingPolicies}, nil)[0])
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	p := &requesterPolicy{compiler: compiler}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for i := range policy.Spec.Variables {
		v := mutating.Variable(policy.Spec.Variables[i])
		compiled := compiler.CompileAndStoreVariable(&v, options, environment.NewExpressions)
		require.Nil(t, compiled.Error, v.Name)
	}
	var conditions []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	p.matches = matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, environment.NewExpressions), policy.Spec.FailurePolicy, "policy", "admit", policy.Name)
	options.HasPatchTypes = true
	for _, m := range policy.Spec.Mutations {
		require.Equal(t, admissionv1.PatchTypeJSONPatch, m.PatchType)
		evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, options, environment.NewExpressions)
		require.Empty(t, evaluator.CompilationErrors())
		p.patchers = append(p.patchers, patch.NewJSONPatcher(evaluator))
	}
	return p
}

// create returns what the API server makes of a Pod that is created.
func (p *requesterPolicy) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	ctx := p.compiler.CreateContext(t.Context())
	var now runtime.Object = pod.DeepCopy()
	now.GetObjectKind().SetGroupVersionKind(kind)
	for i, patcher := range p.patchers {
		versioned := &admission.VersionedAttributes{
			Attributes:    admission.NewAttributesRecord(now, nil, kind, "ns", "pod", pods, "", admission.Create, &metav1.CreateOptions{}, false, nil),
			VersionedKind: kind, VersionedObject: admission.NewLazyObject(now),
		}
		if i == 0 {
			result := p.matches.Match(ctx, versioned, nil, nil)
			require.NoError(t, result.Error)
			if !result.Matches {
				break
			}
		}
		var err error
		now, err = patcher.Patch(ctx, patch.Request{
			MatchedResource: pods, VersionedAttributes: versioned, ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme),
		}, celconfig.RuntimeCELCostBudget)
		require.NoError(t, err)
	}
	created := now.(*corev1.Pod)
	created.TypeMeta = metav1.TypeMeta{}
	return created
}

// asks is a Pod with an annotation and a GPU.
func asks(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other"}, {
			Name: podmeta.ServingContainer, Image: "requester",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}},
		}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func program(pod *corev1.Pod) *corev1.Container { return podmeta.ProgramOf(pod).Container }

func sidecar(p *corev1.Pod) {
	c := p.Spec.Containers[1]
	c.Name, c.RestartPolicy = podmeta.SidecarContainer, new(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first"}, c}
	p.Spec.Containers[1].Resources = corev1.ResourceRequirements{}
}

func annotated(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: "x"} }
}

func listsGate(p *corev1.Pod) {
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}}
}

func ownProbe(p *corev1.Pod) {
	program(p).ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8081)}}}
}

func volume(name, configMap string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		v := corev1.Volume{Name: name}
		if configMap != "" {
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
}

func mounted(name, path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		program(p).VolumeMounts = append(program(p).VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
}

func says(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { program(p).Args = args }
}

func env(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { program(p).Env = []corev1.EnvVar{{Name: "A"}, {Name: name, Value: value}} }
}

// What the policy adds.
var (
	finalizer = func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, podmeta.FinalizerRequester) }
	mount     = mounted(mtls.ConfigMap, mtls.Dir)
	caVolume  = volume(mtls.ConfigMap, mtls.ConfigMap)
)

func probeAt(port int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		program(p).ReadinessProbe = &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready?wait=5s", Port: intstr.FromInt32(port)}},
			TimeoutSeconds: 10, PeriodSeconds: 1, FailureThreshold: 1,
		}
	}
}

func TestPolicyAddsToRequestersWhatTheyLack(t *testing.T) {
	type changes []func(*corev1.Pod)
	all := changes{finalizer, mount, caVolume, probeAt(8080)}
	stranger := func(labels map[string]string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels = labels } }
	policy := newRequesterPolicy(t)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		adds changes
	}{
		"an annotation and a GPU":               {asks(), all},
		"a patch in the other spelling":         {asks(annotated(podmeta.PrefixAlias + "server-patch")), all},
		"a configuration":                       {asks(annotated(podmeta.AnnotationInferenceServerConfig)), all},
		"a configuration in the other spelling": {asks(annotated(podmeta.PrefixAlias + "inference-server-config")), all},
		"no annotation":                         {asks(func(p *corev1.Pod) { p.Annotations = nil }), nil},
		"an annotation that asks for nothing":   {asks(annotated(podmeta.AnnotationAdminPort)), nil},
		"a launcher":                            {asks(stranger(map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm"})), nil},
		"one label of a launcher":               {asks(stranger(map[string]string{podmeta.LabelLauncherConfig: "vllm"})), all},
		"another component":                     {asks(stranger(map[string]string{podmeta.LabelLauncherConfig: "vllm", podmeta.LabelComponent: "x"})), all},
		"a mirror Pod":                          {asks(func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" }), nil},
		"a sidecar":                             {asks(sidecar), all},
		"an init container that ends":           {asks(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: podmeta.SidecarContainer}} }), all},
		"an init container that is tried again": {asks(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: podmeta.SidecarContainer, RestartPolicy: new(corev1.ContainerRestartPolicyOnFailure)}}
		}), all},
		"no container of the program":   {asks(func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), changes{finalizer}},
		"no GPU":                        {asks(func(p *corev1.Pod) { p.Spec.Containers[1].Resources = corev1.ResourceRequirements{} }), all},
		"other finalizers":              {asks(func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }), all},
		"the finalizer":                 {asks(finalizer), all[1:]},
		"other mounts and volumes":      {asks(volume("x", ""), mounted("x", "/x")), all},
		"its own mount":                 {asks(volume("ca", mtls.ConfigMap), mounted("ca", mtls.Dir+"/")), changes{finalizer, probeAt(8080)}},
		"a volume without its mount":    {asks(caVolume), changes{finalizer, mount, probeAt(8080)}},
		"another volume with that name": {asks(volume(mtls.ConfigMap, "x")), changes{finalizer, probeAt(8080)}},
		"its own probe":                 {asks(ownProbe), all[:3]},
		"its own probe at a sidecar":    {asks(sidecar, ownProbe), all[:3]},
		"the readiness gate":            {asks(listsGate), all[:3]},
		"the gate and a probe":          {asks(listsGate, ownProbe), all[:3]},
		"another gate":                  {asks(func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}} }), all},
		"a gate of scheduling": {asks(func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
		}), all},
		"another port":                          {asks(says("--spi-port=1", "--probes-port=9000")), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"another port in two words":             {asks(says("--probes-port", "9000")), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"another port in the command":           {asks(func(p *corev1.Pod) { program(p).Command = []string{"requester", "--probes-port=9000"} }), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"another port in the environment":       {asks(env("HOTSEAT_REQUESTER_PROBES_PORT", "9000")), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"another port in the other environment": {asks(env("PROBES_PORT", "9000")), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"a flag and an environment":             {asks(env("PROBES_PORT", "1"), says("--probes-port=9000")), changes{finalizer, mount, caVolume, probeAt(9000)}},
		"a port that only its node knows":       {asks(says("--probes-port=$(PORT)")), all[:3]},
		"a port that is read from elsewhere":    {asks(env("PROBES_PORT", "")), all[:3]},
		"a flag without its value":              {asks(says("--probes-port")), all},
		"everything, as the examples have it":   {asks(finalizer, mount, caVolume, probeAt(8080)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			expected := c.pod.DeepCopy()
			for _, add := range c.adds {
				add(expected)
			}
			created := policy.create(t, c.pod)
			assert.Equal(t, expected, created)
			assert.Equal(t, created, policy.create(t, created), "it may be asked again")
		})
	}
}

// TestPolicyGivesExamplesTheFinalizerAndTheMountAlone creates requesters that have their own probe.
func TestPolicyGivesExamplesTheFinalizerAndTheMountAlone(t *testing.T) {
	policy := newRequesterPolicy(t)
	for _, file := range []string{"llm-d/requester.yaml", "dual-pods/requesters.yaml", "dual-pods/sidecar.yaml"} {
		text, err := os.ReadFile(root + "/examples/" + file)
		require.NoError(t, err)
		seen := 0
		for object := range strings.SplitSeq(string(text), "\n---\n") {
			var of struct {
				Kind     string
				Metadata metav1.ObjectMeta
				Spec     struct{ Template corev1.PodTemplateSpec }
			}
			require.NoError(t, yaml.Unmarshal([]byte(object), &of))
			pod := &corev1.Pod{ObjectMeta: of.Spec.Template.ObjectMeta, Spec: of.Spec.Template.Spec}
			if of.Kind == "Pod" {
				*pod = decode[corev1.Pod](t, object)
				pod.TypeMeta = metav1.TypeMeta{}
			} else if of.Kind != "Deployment" {
				continue
			}
			seen++
			created := policy.create(t, pod)
			assert.Equal(t, []string{podmeta.FinalizerRequester}, created.Finalizers)
			read, problems := podmeta.ReadRequester(created)
			assert.Empty(t, problems, file)
			assert.True(t, read.TLS, "%s: it takes orders from the controller alone", file)
			assert.Equal(t, program(pod).ReadinessProbe, program(created).ReadinessProbe, file)
			assert.Equal(t, pod.Spec.ReadinessGates, created.Spec.ReadinessGates, file)
		}
		assert.Positive(t, seen, file)
	}
}

// TestPolicyForRequestersIsCreatedWhereTheAPIServerHasSuchPolicies renders it.
func TestPolicyForRequestersIsCreatedWhereTheAPIServerHasSuchPolicies(t *testing.T) {
	has := apiVersions{mutatingPolicies}
	off := func(values map[string]any) { values["requesterDefaults"].(map[string]any)["enabled"] = false }
	noController := func(values map[string]any) { values["controller"].(map[string]any)["enabled"] = false }
	assert.Empty(t, render(t, "policy-requesters.yaml", apiVersions{"admissionregistration.k8s.io/v1"}, nil), "Kubernetes before 1.36")
	assert.Empty(t, render(t, "policy-requesters.yaml", has, off))
	assert.Empty(t, render(t, "policy-requesters.yaml", has, noController))
	objects := render(t, "policy-requesters.yaml", has, func(values map[string]any) { values["watchNamespace"] = "team" })
	require.Len(t, objects, 2)
	policy := decode[admissionv1.MutatingAdmissionPolicy](t, objects[0])
	binding := decode[admissionv1.MutatingAdmissionPolicyBinding](t, objects[1])
	assert.Equal(t, "hotseat-controller-team-requesters", policy.Name)
	assert.Equal(t, policy.Name, binding.Spec.PolicyName)
	assert.Equal(t, map[string]string{corev1.LabelMetadataName: "team"}, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels)
	assert.Equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy)
}
