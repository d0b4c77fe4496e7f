package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestAnInstanceThatNobodyIsBoundToIsPutToRest(t *testing.T) {
	ours := map[string]string{podmeta.AnnotationMadeFor: "ns/req"}
	for _, e := range []struct {
		i  launcherapi.Instance
		do Action
	}{
		{launcherapi.Instance{State: "awake", Annotations: ours}, Sleep},
		{launcherapi.Instance{State: "awake", Annotations: ours, SwapID: "s"}, Nothing},
		{launcherapi.Instance{State: "awake"}, Nothing},
		{launcherapi.Instance{State: "starting", Annotations: ours}, DeleteInstance},
		{launcherapi.Instance{State: "starting", Annotations: ours, SwapID: "s"}, DeleteInstance},
		{launcherapi.Instance{State: "failed", Annotations: ours}, DeleteInstance},
		{launcherapi.Instance{State: "sleeping", Annotations: ours}, Nothing},
		{launcherapi.Instance{State: "falling_asleep", Annotations: ours}, Nothing},
	} {
		assert.Equal(t, e.do, Stray(e.i, false).Do, e.i)
	}
	assert.Equal(t, DeleteInstance, Stray(launcherapi.Instance{State: "awake", Annotations: ours}, true).Do, "it was told to sleep in vain")
	assert.Equal(t, Nothing, Stray(launcherapi.Instance{State: "awake"}, true).Do)
}
