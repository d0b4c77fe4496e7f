package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/figures"
)

const metricsText = `# TYPE controller_runtime_reconcile_time_seconds histogram
controller_runtime_reconcile_time_seconds_bucket{controller="gang",le="0.005"} 3
controller_runtime_reconcile_time_seconds_sum{controller="gang"} 1
controller_runtime_reconcile_time_seconds_count{controller="gang"} 4
controller_runtime_reconcile_time_seconds_bucket{controller="groups",le="0.005"} 1990
controller_runtime_reconcile_time_seconds_bucket{controller="groups",le="0.01"} 2000
controller_runtime_reconcile_time_seconds_sum{controller="groups"} 2.5e-01
controller_runtime_reconcile_time_seconds_count{controller="groups"} 2000
`

func TestPassesAreThoseOfOneController(t *testing.T) {
	groups, err := readPasses([]byte(metricsText), "groups")
	require.NoError(t, err)
	assert.Equal(t, passes{count: 2000, quick: 1990, sum: 250 * time.Millisecond}, groups)
	assert.Equal(t, passes{count: 1000, quick: 995, sum: 125 * time.Millisecond}, groups.since(passes{count: 1000, quick: 995, sum: 125 * time.Millisecond}))
	assert.Equal(t, "0.12, 99.5 %", groups.String())
	gangs, err := readPasses([]byte(metricsText), "gang")
	require.NoError(t, err)
	assert.Equal(t, passes{count: 4, quick: 3, sum: time.Second}, gangs)
	_, err = readPasses([]byte(metricsText), "binding")
	require.ErrorContains(t, err, "lack")
}

func TestFasterComparesTheMedians(t *testing.T) {
	row := faster("f", figures.Times{1e9, 2e9, 3e9}, figures.Times{8e9, 10e9, 90e9}, 5)
	assert.Equal(t, figures.Row{
		Figure: "f (ms)", Samples: 3, Ours: "2000 / 3000", Bare: "10000 / 90000", Beside: "5.0× faster", Target: "≥ 5× faster at p50", Met: true,
	}, row)
	assert.False(t, faster("f", figures.Times{2e9}, figures.Times{9e9}, 5).Met)
}
