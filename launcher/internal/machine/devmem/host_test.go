package devmem

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

const (
	mib = uint64(1) << 20
	gib = uint64(1) << 30
)

// The numbers are of vLLM 0.30.0 with a model that is hardly there, on CPUs,
// asleep: API server, EngineCore, Worker, resource tracker.
func TestWhatASleeperHoldsOfMainMemory(t *testing.T) {
	for name, c := range map[string]struct {
		root      procfs.Resident
		others    []procfs.Resident
		inherited uint64
		pss       uint64 // what a walk through all page tables says
		private   uint64 // what nobody else has: it comes back when the sleeper goes
	}{
		"started by exec": {
			root: procfs.Resident{Anon: 546 * mib, File: 351 * mib},
			others: []procfs.Resident{
				{Anon: 531 * mib, File: 352 * mib}, {Anon: 1568 * mib, File: 363 * mib}, {Anon: 6 * mib, File: 7 * mib},
			},
			pss: 2912 * mib, private: 2651 * mib,
		},
		"forked from a preloader": {
			root: procfs.Resident{Anon: 568 * mib, File: 24 * mib},
			others: []procfs.Resident{
				{Anon: 567 * mib, File: 20 * mib}, {Anon: 1593 * mib, File: 47 * mib}, {Anon: 6 * mib, File: 7 * mib},
			},
			inherited: 564 * mib,
			pss:       1586 * mib, private: 1132 * mib,
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := hostMemory(c.root, c.others, c.inherited)
			assert.InEpsilon(t, c.private, held, 0.15)
			assert.Less(t, held, c.pss*11/10)
		})
	}
}

func TestPinnedBuffersThatADriverMapsAreCountedForEachWorker(t *testing.T) {
	worker := procfs.Resident{Anon: gib, File: 40 * gib}
	held := hostMemory(procfs.Resident{Anon: gib, File: gib}, []procfs.Resident{worker, worker}, 0)
	assert.Equal(t, 3*gib+gib+2*39*gib, held)
}

func TestAHelperThatWasNotForkedOfThePreloaderCountsNoLessThanNothing(t *testing.T) {
	assert.Equal(t, uint64(0), hostMemory(procfs.Resident{Anon: mib}, []procfs.Resident{{Anon: mib}}, gib))
}
