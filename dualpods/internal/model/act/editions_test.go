package act

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// sweeping is a site with a Sweeper.
type sweeping struct {
	*site
	of        string   // the InferenceServerConfig
	forgotten []string // the last argument of each edition whose sleepers were deleted
	cannot    error
}

func newSweeping(t *testing.T) *sweeping {
	t.Helper()
	return sweepingAt(newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, minReplicas: 1, args: [--one]}}`), "llama-default")
}

func sweepingAt(of *site, config string) *sweeping {
	s := &sweeping{site: of, of: config}
	s.c.opts.Forget = func(_ context.Context, config *v1alpha1.InferenceServerConfig) error {
		if s.cannot == nil {
			args := config.Spec.ModelServerConfig.Args
			s.forgotten = append(s.forgotten, args[slices.IndexFunc(args, func(a string) bool { return a[:2] == "--" })])
		}
		return s.cannot
	}
	return s
}

// config returns the InferenceServerConfig.
func (s *site) config() *v1alpha1.InferenceServerConfig {
	s.t.Helper()
	var o v1alpha1.InferenceServerConfig
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "llama-default"}, &o))
	return &o
}

// args edits the Model, and has the controller follow.
func (s *sweeping) args(to string) {
	s.t.Helper()
	s.change(func(m *v1alpha1.Model) { m.Spec.Args = []string{to} })
	s.pass(time.Second)
}

// rolled has the Deployment say how many replicas it has, and how many of them are of the present edition and ready.
func (s *sweeping) rolled(replicas, ready int32) {
	s.t.Helper()
	d := s.deployment("llama-default")
	d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas = d.Generation, replicas, ready, ready
	require.NoError(s.t, s.api.Status().Update(s.t.Context(), d))
}

// sweep runs a pass of the Sweeper, and returns what it has deleted.
func (s *sweeping) sweep() []string {
	s.t.Helper()
	s.forgotten = nil
	_, err := (&Sweeper{s.c.opts}).Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: s.of}})
	require.ErrorIs(s.t, err, s.cannot)
	return s.forgotten
}

func TestSleepersOfEarlierEditionsGoOnceTheEditHasRolled(t *testing.T) {
	s := newSweeping(t)
	s.pass(0)
	s.addPod("old", "default", serves)
	old := s.pod("old")
	old.Annotations[podmeta.AnnotationTemplateHash] = s.deployment("llama-default").Spec.Template.Annotations[podmeta.AnnotationTemplateHash]
	require.NoError(t, s.api.Update(t.Context(), old))
	s.rolled(1, 1)
	assert.Empty(t, s.sweep(), "there is no earlier edition")

	s.args("--two")
	assert.Empty(t, s.sweep(), "the Deployment has not begun")
	s.args("--three")
	s.rolled(1, 0)
	assert.Empty(t, s.sweep(), "the new edition may fail")
	s.rolled(1, 1)
	assert.Empty(t, s.sweep(), "a Pod of an earlier edition still drains")
	require.NoError(t, s.api.Delete(t.Context(), s.pod("old")))
	s.cannot = errors.New("the launcher does not answer")
	s.sweep()
	s.cannot = nil
	assert.Equal(t, []string{"--one", "--two"}, s.sweep())
	assert.NotContains(t, s.config().Annotations, podmeta.AnnotationEditions)
	assert.Empty(t, s.sweep())
	s.pass(time.Second)
	assert.Empty(t, s.pass(time.Second), "at rest nothing is written")
}

func TestEditThatIsUndoneKeepsItsSleepers(t *testing.T) {
	s := newSweeping(t)
	s.pass(0)
	s.args("--two")
	s.args("--one")
	s.rolled(1, 1)
	assert.Equal(t, []string{"--two"}, s.sweep())
}

func TestEarlierEditionsOfStrangersAreLeftAlone(t *testing.T) {
	s := newSweeping(t)
	s.pass(0)
	s.args("--two")
	s.rolled(1, 1)
	theirs := s.config()
	theirs.OwnerReferences = nil
	require.NoError(t, s.api.Update(t.Context(), theirs))
	assert.Empty(t, s.sweep())
}

func TestDeletedModelTakesSleepersOfItsEarlierEditionsAlong(t *testing.T) {
	s := newSweeping(t)
	s.pass(0)
	s.args("--two")
	require.NoError(t, s.api.Delete(t.Context(), s.model()))
	s.pass(0)
	s.pass(0)
	assert.Equal(t, []string{"--two", "--one"}, s.forgotten)
}

func TestSleepersOfEarlierEditionsBehindSeatsGoOnceTheSeatsServe(t *testing.T) {
	s := sweepingAt(newSeats(t), "llama-seats")
	s.change(func(m *v1alpha1.Model) { m.Spec.Args = []string{"--one"} })
	s.pass(0)
	s.pass(0)
	s.seated()
	s.served()
	s.args("--two")
	assert.Empty(t, s.sweep(), "the seat has the edition before")
	s.seated()
	assert.Empty(t, s.sweep(), "the seat does not serve yet")
	s.served()
	assert.Equal(t, []string{"--one"}, s.sweep())
}

func TestEarlierEditionsThatAreLongAreForgotten(t *testing.T) {
	config := &v1alpha1.InferenceServerConfig{}
	spec := func(n int) (of v1alpha1.InferenceServerConfigSpec) {
		of.ModelServerConfig.Args = []string{"--chat-template=" + strings.Repeat("x", 40<<10), strconv.Itoa(n)}
		return of
	}
	for n := range 8 {
		config.Spec = spec(n + 1)
		addEdition(config, spec(n), "h")
		assert.Less(t, len(config.Annotations[podmeta.AnnotationEditions]), 128<<10)
	}
	kept := editionsOf(config).Specs
	require.NotEmpty(t, kept)
	assert.Equal(t, spec(7), kept[len(kept)-1], "the oldest go")
}
