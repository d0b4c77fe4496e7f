package gang

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// slowServer has writes to Pods wait.
type slowServer struct {
	*apiServer
	inFlight atomic.Int32
	goOn     chan struct{}
}

func (s *slowServer) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	s.inFlight.Add(1)
	<-s.goOn
	return s.apiServer.Patch(ctx, o, p, options...)
}

// A pass is over when all of its writes are, and no other pass goes on meanwhile.
func TestGatesOfAGroupAreRemovedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		llama := serving("llama")
		llama.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{}
		s := newSite(t, 4, llama)
		s.api.refresh()
		slow := &slowServer{apiServer: s.api, goOn: make(chan struct{})}
		s.c.opts.API = slow
		done := make(chan error)
		go func() {
			_, err := s.c.Reconcile(t.Context(), reconcile.Request{})
			done <- err
		}()
		synctest.Wait()
		assert.EqualValues(t, 4, slow.inFlight.Load())
		close(slow.goOn)
		require.NoError(t, <-done)
	})
}

// The scheduler takes Pods in the order in which it hears of them.
func TestPodsWithMoreGPUsAreLetGoFirst(t *testing.T) {
	sizes := func(runs [][]*Member) (all [][]int64) {
		for _, run := range runs {
			var gpus []int64
			for _, m := range run {
				gpus = append(gpus, gpusOf([]*Member{m}))
			}
			all = append(all, gpus)
		}
		return all
	}
	assert.Equal(t, [][]int64{{4}, {2, 2}, {0}}, sizes(bySize(wanting(4, 2, 2, 0))))
	assert.Empty(t, bySize(nil))
}
