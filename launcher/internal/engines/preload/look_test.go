package preload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLookAnswersLikeCheckWithoutSideEffects(t *testing.T) {
	f := newFixture(t, withLinkedCommand)
	f.ready()
	uncommon := append(f.environ(), "OMP_NUM_THREADS=2")
	assert.NoError(t, f.pool.Look(f.environ()))
	require.ErrorContains(t, f.pool.Look(uncommon), "no preloader is ready for the instance's environment")
	require.Len(t, f.pool.List().Preloaders, 1, "none was begun for it")
	f.ready("OMP_NUM_THREADS=2")
	assert.NoError(t, f.pool.Look(uncommon))

	f.linkTo("elsewhere")
	require.ErrorContains(t, f.pool.Look(f.environ()), "has changed")
	for _, l := range f.pool.List().Preloaders {
		assert.Equal(t, string(Ready), l.State, "none was ended")
	}
	require.ErrorContains(t, f.pool.Check(f.environ()), "has changed")
	f.eventually("a check has it loaded again", func() bool { return f.pool.Look(f.environ()) == nil })
}
