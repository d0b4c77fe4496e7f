package gpu_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

func uuids(devices []gpu.Device) (all []string) {
	for _, d := range devices {
		all = append(all, d.UUID)
	}
	return all
}

func TestSomeGPUsAreUsedWhereTheSettingOrCUDAsVariableSaysSo(t *testing.T) {
	dir, _ := machine(t)
	path := library(t, dir)
	every := []string{"MIG-a1", "MIG-a2", "GPU-b", "GPU-c"}
	for name, c := range map[string]struct {
		visible []string
		env     string
		want    []string
	}{
		"the variable names an index":        {nil, "1", []string{"GPU-b"}},
		"the variable names UUIDs":           {nil, "GPU-c, MIG-a2", []string{"MIG-a2", "GPU-c"}},
		"the variable names a GPU in slices": {nil, "0", []string{"MIG-a1", "MIG-a2"}},
		"the variable ends like CUDA's":      {nil, "2,-1,1", []string{"GPU-c"}},
		"the setting is stronger":            {[]string{"GPU-b", "2"}, "0", []string{"GPU-b", "GPU-c"}},
		"the setting says all":               {[]string{"all"}, "0", every},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", c.env)
			var log bytes.Buffer
			p := open(t, gpu.Options{Source: "nvml", NVMLLibrary: path, Visible: c.visible, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.Equal(t, c.want, uuids(p.Devices()))
			if c.visible == nil {
				require.Contains(t, log.String(), "using the GPUs of CUDA_VISIBLE_DEVICES alone", "it is told")
			}
		})
	}
}

func TestGPUsThatAreNotThereCannotBeChosen(t *testing.T) {
	dir, _ := machine(t)
	path := library(t, dir)
	_, err := gpu.Open(gpu.Options{Source: "auto", NVMLLibrary: path, Visible: []string{"1", "7"}})
	require.EqualError(t, err, `--visible-gpus names GPU "7", which is not here; there are 0 (MIG-a1), 0 (MIG-a2), 1 (GPU-b), 2 (GPU-c)`)
	for _, none := range []string{"", "-1", "7,1", "GPU-"} {
		t.Setenv("CUDA_VISIBLE_DEVICES", none)
		_, err = gpu.Open(gpu.Options{Source: "auto", NVMLLibrary: path})
		require.ErrorContains(t, err, "CUDA_VISIBLE_DEVICES="+none+" leaves no GPU", "no GPUs are simulated instead")
	}
}

func TestSimulatedGPUsHeedTheSettingAlone(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	state := t.TempDir()
	require.Len(t, open(t, gpu.Options{Source: "simulated:3", StateDir: state}).Devices(), 3)
	p := open(t, gpu.Options{Source: "simulated:3", StateDir: state, Visible: []string{"2"}})
	require.Len(t, p.Devices(), 1)
	require.Equal(t, 2, p.Devices()[0].Index)
}
