package groups

import (
	"testing"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// defects are rules about scaling that are taken out one by one, and what shows that the checks can fail.
var defects = schedules.Defects{Dirs: []string{".", "../scaling"}, All: []schedules.Defect{
	schedules.NewDefect("scaling: another replica is chosen before the cache shows the deletion",
		"m.Pod.Is != nil && !m.podLeaves() && !m.Removed {", "m.Pod.Is != nil && !m.podLeaves() {",
	),
	schedules.NewDefect("scaling: a replica that has become ready is deleted all the same",
		"[]string{rowSurplus, rowOutdated,", "[]string{rowOutdated,",
	),
	schedules.NewDefect("scaling: several groups are scaled at once",
		"isFree(groups) && isHighest(groups, n)", "isHighest(groups, n)",
	),
}}

func TestEachDefectCanBeBroughtBack(t *testing.T) { defects.CanBeBrought(t) }

// TestEachDefectIsFound builds the schedules with each defect, and plays seeds until one shows it. SEEDS
// bounds them.
func TestEachDefectIsFound(t *testing.T) { defects.Find(t) }
