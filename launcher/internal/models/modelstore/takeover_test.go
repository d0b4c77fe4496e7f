package modelstore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLeasesUnderAnEarlierNameAreTakenOver(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before, now := user(t, s, "the launcher of /x"), user(t, s, "the launcher of /x (0123)")
	for _, holder := range []string{"instance mine", "instance another's"} {
		require.NoError(t, before.Lease(v.Key, holder))
	}
	for range 2 { // the second time there is nothing to take over
		require.NoError(t, now.TakeOver("the launcher of /x", func(holder string) bool { return holder == "instance mine" }))
		holders, err := s.Holders(v.Key)
		require.NoError(t, err)
		assert.Equal(t, []string{"instance another's of the launcher of /x", "instance mine of the launcher of /x (0123)"}, holders)
	}
	require.NoError(t, now.ReleaseOthers(func(string) bool { return false }))
	holders, err := s.Holders(v.Key)
	require.NoError(t, err)
	assert.Equal(t, []string{"instance another's of the launcher of /x"}, holders)
}
