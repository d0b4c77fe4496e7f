package seatpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestLargePoolIsMadeInSeveralPasses(t *testing.T) {
	s := newSite(t)
	var pool v1alpha1.SeatPool
	require.NoError(t, s.api.Get(t.Context(), key, &pool))
	pool.Spec.Replicas = new(int32(2*mostCreated + 1))
	require.NoError(t, s.api.Update(t.Context(), &pool))
	for _, made := range []int{mostCreated, mostCreated, 1, 0} {
		s.now, s.acts = s.now.Add(time.Second), nil
		again, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		require.Len(t, s.acts, made)
		assert.Equal(t, made == mostCreated, again.RequeueAfter == conflictPause, "it goes on at once while seats are missing")
	}
}
