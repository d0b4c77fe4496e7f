package supervisor

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstanceShowsItsLogLengthAtSleep(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		i, err := r.Get("a")
		require.NoError(t, err)
		assert.Zero(t, i.AsleepAt)
		logs := r.opts.Logs.(fakeLogs)
		require.NoError(t, os.WriteFile(logs.dir+"/"+i.LogName, []byte("said awake\n"), 0o600))
		r.asleep("a")
		i, err = r.Get("a")
		require.NoError(t, err)
		assert.EqualValues(t, len("said awake\n"), i.AsleepAt)
		r.mu.Lock() // its host bytes may still be being measured
		saved := r.instances["a"].saved()
		r.mu.Unlock()
		assert.Equal(t, i.AsleepAt, saved.AsleepAt, "the next life of the launcher knows it too")
	})
}
