package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachGroupWithALimitThatAProcessIsInIsRead(t *testing.T) {
	write := func(dir string, files map[string]string) {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
		}
	}
	two, one := t.TempDir(), t.TempDir()
	write(filepath.Join(two, "pods"), map[string]string{"memory.max": "4000", "memory.current": "1000", "memory.stat": "anon 1\ninactive_file 30\nfile_mapped 4"})
	write(filepath.Join(two, "pods", "launcher"), map[string]string{"memory.max": "max", "memory.current": "500"})
	write(one, map[string]string{"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "1"})
	write(filepath.Join(one, "a"), map[string]string{
		"memory.limit_in_bytes": "2000", "memory.usage_in_bytes": "70",
		"memory.stat": "inactive_file 1\nmapped_file 1\ntotal_inactive_file 20\ntotal_mapped_file 3",
	})
	m := mounts{v2: []hierarchy{{mount: two, own: "/pods/launcher"}}, v1: map[string]hierarchy{"memory": {mount: one, own: "/a"}}}
	all, err := m.limitedMemory()
	require.NoError(t, err)
	assert.Equal(t, []Memory{{Limit: 4000, Used: 1000, InactiveFile: 30, MappedFile: 4}, {Limit: 2000, Used: 70, InactiveFile: 20, MappedFile: 3}}, all)

	write(filepath.Join(one, "a"), map[string]string{"memory.usage_in_bytes": "many"})
	_, err = m.limitedMemory()
	assert.ErrorContains(t, err, "cannot read "+filepath.Join(one, "a", "memory.usage_in_bytes"))
}

func TestTheGroupsOfThisMachineAreRead(t *testing.T) {
	all, err := LimitedMemory()
	require.NoError(t, err)
	for _, m := range all {
		assert.Positive(t, m.Limit)
		assert.Positive(t, m.Used)
	}
}
