package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// edit edits a Deployment as somebody else does, and returns it as it was.
func (s *site) edit(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	s.t.Helper()
	was := s.deployment(name)
	d := was.DeepCopy()
	change(d)
	require.NoError(s.t, s.api.Update(s.t.Context(), d))
	return was
}

func addContainer(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mine"})
}

func TestEditedPodTemplateIsPutBackAndTold(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	for name, change := range map[string]func(*appsv1.Deployment){
		"a container more": addContainer,
		"a label more":     func(d *appsv1.Deployment) { d.Spec.Template.Labels["mine"] = "x" },
		"another strategy": func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		},
		"a default that was": func(d *appsv1.Deployment) { d.Spec.Template.Spec.DNSPolicy = corev1.DNSDefault },
	} {
		t.Run(name, func(t *testing.T) {
			was := s.edit("llama-default", change)
			s.pass(time.Second)
			assert.Equal(t, was.Spec, s.deployment("llama-default").Spec)
			told := s.events()
			require.Len(t, told, 1)
			assert.Contains(t, told[0], "EditedByOthers entry default: somebody else has edited the Pod template of Deployment llama-default, and the controller has undone the edit: edit the Model instead, or set")
			assert.Empty(t, s.pass(time.Second))
			assert.Empty(t, s.events())
		})
	}
}

func TestEditsAgainAndAgainAreUndoneLaterAndLater(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	containers := func() int { return len(s.deployment("llama-default").Spec.Template.Spec.Containers) }
	for range undoneAtOnce {
		s.edit("llama-default", addContainer)
		s.pass(time.Second / 2)
		require.Equal(t, 1, containers())
	}
	for pause := time.Second; pause <= 8*time.Second; pause *= 2 {
		s.edit("llama-default", addContainer)
		s.pass(pause / 2)
		require.Equal(t, 2, containers(), "the edit stays for a while")
		result, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		assert.Positive(t, result.RequeueAfter)
		assert.LessOrEqual(t, result.RequeueAfter, pause/2)
		s.count.Held = 1 // a write of the number is no write of the template
		s.pass(0)
		require.Equal(t, 2, containers())
		s.pass(pause / 2)
		require.Equal(t, 1, containers())
	}
	s.edit("llama-default", addContainer)
	s.pass(time.Hour)
	assert.Equal(t, 1, containers(), "the others were long ago")
}

func TestEditedPodTemplateStaysInModeOff(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.change(func(m *v1alpha1.Model) { m.Spec.Autoscaling = &v1alpha1.ModelAutoscaling{Mode: "Off"} })
	s.pass(time.Second)
	s.edit("llama-default", addContainer)
	s.pass(time.Second)
	assert.Len(t, s.deployment("llama-default").Spec.Template.Spec.Containers, 2)
	assert.Empty(t, s.events())
	s.change(func(m *v1alpha1.Model) { m.Spec.Autoscaling = nil })
	s.pass(time.Second)
	assert.Len(t, s.deployment("llama-default").Spec.Template.Spec.Containers, 1)
	assert.Len(t, s.events(), 1)
}

func TestRestartOfADeploymentIsNoEdit(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	const at = "2026-12-01T12:00:00Z"
	s.edit("llama-default", func(d *appsv1.Deployment) { d.Spec.Template.Annotations[annotationRestartedAt] = at })
	s.pass(time.Second)
	assert.Equal(t, at, s.deployment("llama-default").Spec.Template.Annotations[annotationRestartedAt])
	s.edit("llama-default", addContainer)
	s.pass(time.Second)
	d := s.deployment("llama-default")
	assert.Equal(t, at, d.Spec.Template.Annotations[annotationRestartedAt], "the restart is not undone with the edit")
	assert.Len(t, d.Spec.Template.Spec.Containers, 1)
}

// A newer API server shows other defaults in what it has stored long ago.
func TestOtherDefaultsAreNoEdit(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.edit("llama-default", func(d *appsv1.Deployment) {
		d.Annotations[podmeta.AnnotationTemplateStored] = d.Annotations[podmeta.AnnotationTemplateHash] + ".old"
	})
	s.pass(time.Second)
	assert.Empty(t, s.events())
	assert.Equal(t, stored(s.deployment("llama-default")), s.deployment("llama-default").Annotations[podmeta.AnnotationTemplateStored])
	assert.Empty(t, s.pass(time.Second), "at rest nothing is written")
}

func TestEditedConfigIsPutBackAndTold(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	edited := s.config()
	was := edited.DeepCopy()
	edited.Spec.ModelServerConfig.Args = append(edited.Spec.ModelServerConfig.Args, "--mine")
	require.NoError(t, s.api.Update(t.Context(), edited))
	s.pass(time.Second)
	assert.Equal(t, was.Spec, s.config().Spec)
	told := s.events()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "somebody else has edited InferenceServerConfig llama-default, and the controller has undone the edit: edit the Model instead")

	s.change(func(m *v1alpha1.Model) { m.Spec.Args = []string{"--seed=1"} })
	s.pass(time.Second)
	assert.Contains(t, s.config().Spec.ModelServerConfig.Args, "--seed=1")
	assert.Empty(t, s.events(), "an edit of the Model is not somebody else's")
}
