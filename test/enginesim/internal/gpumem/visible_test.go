package gpumem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
)

func TestVisibleDevicesArePickedAsCUDAReadsThem(t *testing.T) {
	gpus := []simgpu.GPU{{UUID: "GPU-a", Index: 0}, {UUID: "GPU-b", Index: 1}, {UUID: "GPU-c", Index: 2}, {UUID: "MIG-d", Index: 3}}
	for _, c := range []struct {
		visible string
		rank    int
		want    string
	}{
		{"", 1, "GPU-b"},
		{"2,0", 0, "GPU-c"},
		{"2,0", 1, "GPU-a"},
		{"GPU-b", 0, "GPU-b"},
		{" GPU-c , 1", 1, "GPU-b"},
		{"MIG-d", 0, "MIG-d"},
	} {
		got, err := pick(gpus, c.visible, c.rank)
		require.NoError(t, err, c.visible)
		require.Equal(t, c.want, got.UUID, c.visible)
	}
	for _, c := range []struct {
		visible string
		rank    int
	}{{"", 4}, {"1", 1}, {"0,9,1", 1}, {"-1", 0}, {"3", 0}} {
		_, err := pick(gpus, c.visible, c.rank)
		require.ErrorContains(t, err, "invalid device ordinal", c.visible)
	}
}

func TestSizesAreWrittenAsPythonWritesThem(t *testing.T) {
	for bytes, want := range map[uint64]string{80 << 30: "80.0", 3 << 29: "1.5", 79027398247: "73.6", 0: "0.0"} {
		require.Equal(t, want, GiB(bytes))
	}
}

func TestWithoutAFolderNothingIsAccountedFor(t *testing.T) {
	m, err := Open(Options{})
	require.NoError(t, err)
	require.NoError(t, m.Load())
	require.NoError(t, m.Sleep(0, nil))
	require.NoError(t, m.Wake(1))
	require.NoError(t, m.Leave())
	require.NoError(t, Hold("", "", 1))
}
