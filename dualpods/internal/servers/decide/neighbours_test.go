package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

const gib = uint64(1) << 30

// beside are instances that another launcher has on GPU-0, in that state and with
// so many bytes there, the least recently used first.
func beside(state string, bytes ...uint64) (found []Neighbour) {
	for n, held := range bytes {
		used := now.Add(time.Duration(n-100) * time.Minute)
		found = append(found, Neighbour{Launcher: "uid-1", Name: "launcher-1", Instance: launcherapi.Instance{
			InstanceID: fmt.Sprintf("other-%d", n), State: state, GPUUUIDs: []string{"GPU-0"}, LastUsedAt: &used,
			GPUBytes: map[string]uint64{"GPU-0": held}, Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/other"},
		}})
	}
	return found
}

// unheard is an instance of a launcher that has been silent for so long.
func unheard(d time.Duration, state string, changes ...func(*Neighbour)) []Neighbour {
	found := beside(state, gib)
	found[0].Silent, found[0].Lost, found[0].Why = true, now.Add(-d), "timeout"
	for _, change := range changes {
		change(&found[0])
	}
	return found
}

// recordedFor gives an instance a record of a requester that lives or does not.
func recordedFor(living bool) func(*Neighbour) {
	return func(b *Neighbour) { b.Recorded, b.Living = true, living }
}

// crowded is one whose attempt lacks half a GiB that others than its launcher hold.
func crowded() Observation {
	o := recorded()
	o.Attempt = Attempt{Asked: true, Over: true, Failure: "no room", NoRoom: &launcherapi.Fit{
		GPUUUID: "GPU-0", Bound: launcherapi.BoundDeviceMemory, Needed: gib, Available: gib / 2, Foreign: gib,
	}}
	return o
}

func TestNoMoreSleepersOfOtherLaunchersGoThanAreInTheWay(t *testing.T) {
	ids := func(bs []Neighbour) (ids []string) {
		for _, b := range bs {
			ids = append(ids, b.InstanceID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		bytes  []uint64
		change func([]Neighbour)
		want   []string
	}{
		"the first is enough":            {[]uint64{gib, gib}, nil, []string{"other-0"}},
		"two are needed":                 {[]uint64{gib / 4, gib / 4, gib}, nil, []string{"other-0", "other-1"}},
		"all are too little":             {[]uint64{gib / 8, gib / 8}, nil, nil},
		"one that holds nothing there":   {[]uint64{0, gib}, nil, []string{"other-1"}},
		"one that is pinned":             {[]uint64{gib, gib}, func(b []Neighbour) { b[0].Annotations[launcherapi.AnnotationPinned] = "true" }, []string{"other-1"}},
		"one that has a record":          {[]uint64{gib, gib}, func(b []Neighbour) { b[0].Recorded = true }, []string{"other-1"}},
		"one that a swap has claimed":    {[]uint64{gib, gib}, func(b []Neighbour) { b[0].SwapID = "s" }, []string{"other-1"}},
		"one that somebody made by hand": {[]uint64{gib, gib}, func(b []Neighbour) { b[0].Annotations = nil }, []string{"other-1"}},
		"one that is awake":              {[]uint64{gib, gib}, func(b []Neighbour) { b[0].State = "awake" }, []string{"other-1"}},
		"one on other GPUs":              {[]uint64{gib, gib}, func(b []Neighbour) { b[0].GPUUUIDs = []string{"GPU-1"} }, []string{"other-1"}},
		"one that nobody has measured":   {[]uint64{gib / 4, gib, gib}, func(b []Neighbour) { b[1].GPUBytes = nil }, []string{"other-0", "other-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := crowded()
			o.Neighbours = beside("sleeping", c.bytes...)
			if c.change != nil {
				c.change(o.Neighbours)
			}
			assert.Equal(t, c.want, ids(see(&o).swapping.victims()))
		})
	}
}

func TestAnAttemptThatWasMadeRoomForIsMadeAgainAtOnce(t *testing.T) {
	o := crowded()
	o.Attempt.Evicted = []string{"uid-1/other-0"}
	step := Decide(o)
	require.Equal(t, NextAttempt, step.Do)
	assert.Equal(t, 2, step.Record.Attempt)
	assert.Zero(t, step.Record.RetryAt)
}
