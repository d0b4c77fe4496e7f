package decide

import (
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Neighbour is an instance that another launcher of the node has on a GPU of the
// record. To the record's launcher its memory is foreign.
type Neighbour struct {
	launcherapi.Instance
	Launcher string // key by which it is asked
	Name     string // of its Pod
	Recorded bool   // a record is of it
	Living   bool   // and the record's requester is to go on
	Deleting bool   // the controller has asked for its deletion
	// Silent: its launcher runs and does not answer, so that the instance is as it
	// was when the launcher answered last; of one that has not answered yet it is
	// known by its record alone, without a state.
	Silent bool
	Lost   time.Time // since when
	Why    string
}

// Neighbours are those of a record, least recently used first.
type Neighbours []Neighbour

// Key returns its launcher and its id.
func (b *Neighbour) Key() string { return b.Launcher + "/" + b.InstanceID }

// LastUse returns when an instance was used last, or made.
func LastUse(i launcherapi.Instance) time.Time {
	if i.LastUsedAt != nil {
		return *i.LastUsedAt
	}
	return i.CreatedAt
}

// busy returns a neighbour that the controller is putting to rest; nil: there is none.
func (all Neighbours) busy() *Neighbour {
	for n := range all {
		if b := &all[n]; !b.Silent && Ours(b.Instance) && !b.Living && !b.rests() {
			return b
		}
	}
	return nil
}

// rests reports whether an instance has no model awake, nor is about to. A sleeper that a swap
// moves may be: its launcher wakes it again when that swap is undone.
func (b *Neighbour) rests() bool {
	switch launcher.State(b.State) {
	case launcher.Sleeping:
		return b.SwapID == ""
	case launcher.Stopped, launcher.Failed:
		return true
	default:
		return false
	}
}

// unrest says why an instance does not rest.
func (b *Neighbour) unrest() string {
	switch launcher.State(b.State) {
	case launcher.Sleeping:
		return "may be awake on its GPU again when swap " + b.SwapID + ", which moves it, is undone"
	case launcher.Stopping:
		return "is still being stopped on its GPU, and has to end first"
	default:
		return "is " + strings.ReplaceAll(b.State, "_", " ") + " on its GPU, and has to sleep first"
	}
}

// unseen returns a neighbour that is to be put to rest, and whose launcher does not
// tell whether it is. Either a record is of it still, which goes once the instance rests, or it
// was not at rest when the launcher answered last.
func (all Neighbours) unseen() *Neighbour {
	for n := range all {
		if b := &all[n]; b.Silent && !b.Living && (b.Recorded || Ours(b.Instance) && !b.rests()) {
			return b
		}
	}
	return nil
}

// victims returns the sleepers of other launchers, least recently used first, whose memory the
// attempt lacks; none where it would lack some still.
func (s *Swapping) victims() []Neighbour { return s.Neighbours.victims(s.Attempt.NoRoom) }

// victims returns those for a swap that was refused with these numbers; nil: it was not refused so.
func (all Neighbours) victims(fit *launcherapi.Fit) (found []Neighbour) {
	if fit == nil {
		return nil
	}
	lacks := Lacking(fit)
	for _, b := range all {
		if b.Silent || launcher.State(b.State) != launcher.Sleeping || !Ours(b.Instance) || Pinned(b.Instance) || b.Recorded || b.SwapID != "" || !slices.Contains(b.GPUUUIDs, fit.GPUUUID) {
			continue
		}
		bytes, measured := b.GPUBytes[fit.GPUUUID]
		if measured && bytes == 0 {
			continue
		}
		found = append(found, b)
		if !measured || bytes >= lacks { // what it holds will show
			return found
		}
		lacks -= bytes
	}
	return nil
}

// Lacking returns how many bytes are missing.
func Lacking(fit *launcherapi.Fit) uint64 { return fit.Needed - min(fit.Needed, fit.Available) }

// evicting returns a neighbour that goes for the attempt. left: one should have gone and does
// not.
func (s *Swapping) evicting() (going *Neighbour, left bool) {
	for n := range s.Neighbours {
		b := &s.Neighbours[n]
		switch {
		case b.Silent || !slices.Contains(s.Attempt.Evicted, b.Key()):
		case b.Deleting || launcher.State(b.State) == launcher.Stopping:
			return b, true
		default:
			left = true
		}
	}
	return nil, left
}
