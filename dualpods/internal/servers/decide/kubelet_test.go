package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods"
)

func TestTheKubeletIsAskedAgainWhileAGPUIsClaimedTwice(t *testing.T) {
	o := fresh()
	o.Rivals = []string{"ns/other"}
	assert.Zero(t, Decide(o).After, "nobody can be asked")
	o.Kubelet = &dualpods.Allocation{Why: "no socket", Since: now.Add(-time.Minute), Again: now.Add(3 * time.Second)}
	assert.Equal(t, 3*time.Second, Decide(o).After)
	o.Kubelet = &dualpods.Allocation{GPUs: []string{"GPU-0"}}
	assert.Zero(t, Decide(o).After, "it has said")
}
