package daemon

import (
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/portlease"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/launcher/internal/edges/frontdoor"
)

// written are the records in the state folder, which outlive the launcher.
type written struct{ instances, swaps, leases, door *statedir.Records }

// openState reads what an earlier life of the launcher wrote. Where a newer version
// of this program wrote a file, none is changed.
func (d *Daemon) openState(state *statedir.Dir) (w written, err error) {
	if w.instances, err = state.Records(instances); err != nil {
		return w, err
	}
	if w.swaps, err = state.Records(swaps); err != nil {
		return w, err
	}
	if w.leases, err = state.Records(portLeases); err != nil {
		return w, err
	}
	if w.door, err = state.Records(doorFolder); err != nil {
		return w, err
	}
	ofDoor, err := w.door.Read()
	if err != nil {
		return w, err
	}
	ofInstances, err := w.instances.Read()
	if err != nil {
		return w, err
	}
	ofSwaps, err := w.swaps.Read()
	if err != nil {
		return w, err
	}
	ofLeases, err := w.leases.Read()
	if err != nil {
		return w, err
	}
	for _, saved := range readable(d, w.instances, ofInstances, supervisor.ReadSaved) {
		d.state.Add(saved)
	}
	d.saved = readable(d, w.swaps, ofSwaps, swap.ReadSaved)
	d.leased = readable(d, w.leases, ofLeases, portlease.ReadSaved)
	for _, profile := range readable(d, w.door, ofDoor, frontdoor.ReadProfile) {
		d.profile = profile
	}
	swap.InOrder(d.saved)
	d.state.UnderWay = swap.UnderWay(d.saved)
	if d.state.Revision, err = state.NextRevision(d.state.Revision, time.Now(), statedir.Clock{}); err != nil {
		d.log.Warn("after a restart with another time of day, watchers may miss events", "error", err)
	}
	return w, nil
}

// readable gives the records that can be read, and sets the other files aside: a
// damaged file costs its own record and no other.
func readable[T any](d *Daemon, records *statedir.Records, all []statedir.Found, read func(statedir.Found) (T, error)) []T {
	var out []T
	for _, f := range all {
		damage := f.Damage
		var record T
		if damage == nil {
			record, damage = read(f)
		}
		if damage == nil {
			out = append(out, record)
			continue
		}
		kept, err := records.SetAside(f.Name, statedir.Broken)
		if err != nil {
			d.log.Error("cannot move a damaged file aside", "error", err)
		}
		d.log.Error("a file in the state folder is damaged; its record is lost, but its engine is not", "file", f.Path, "kept", kept, "reason", damage)
	}
	return out
}
