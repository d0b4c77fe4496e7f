package binding

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestAProcessThatWasFrozenUntilAnotherMayLeadTakesNoStep(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stray := launcherapi.Instance{InstanceID: "stray", State: "failed", Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/gone"}}
	v := &nodeViews{deleted: make(chan string, 2), views: map[string]nodeview.View{"theirs": {Connected: true, Instances: map[string]launcherapi.Instance{"stray": stray}}}}
	leads := false
	c := New(ctx, Options{Providers: v, Again: func(string) {}, Leads: func() bool { return leads }}, logr.Discard())
	defer c.Close()
	defer stop()
	l := &launcherPod{}
	l.read(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs", UID: "theirs"}})
	n, w := c.work("node-0"), &world{launchers: []*launcherPod{l}}
	for _, do := range []decide.Action{decide.Tell, decide.Swap, decide.Sleep, decide.DeleteInstance, decide.Bind, decide.Unbind, decide.DeleteRequester, decide.CreateLauncher} {
		_, _, err := c.take(t.Context(), n, w, decide.Observation{}, decide.Step{Do: do})
		require.ErrorIs(t, err, dualpods.ErrNotLeading, "%s", do)
	}
	require.ErrorIs(t, c.stageRecord(n, w, dualpods.Identity{}, Sight{Observation: decide.Observation{Launcher: &decide.Launcher{UID: "theirs"}}}), dualpods.ErrNotLeading)
	_, over, err := c.take(t.Context(), n, w, decide.Observation{}, decide.Step{Do: decide.Nothing})
	require.NoError(t, err)
	assert.True(t, over)
	_, ok := c.tidy(t.Context(), n, w)
	assert.True(t, ok)
	n.calls.running.Wait()
	assert.Empty(t, v.deleted, "no stray instance is put to rest either")
	leads = true
	_, ok = c.tidy(t.Context(), n, w)
	assert.True(t, ok)
	assert.Equal(t, "theirs/stray", <-v.deleted)
}
