package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/nominal"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// places are where the model of a requester is near: first the sleepers whose GPUs are
// free, those that were used last first, then the stores, first those whose model main
// memory holds.
func (d *decision) places(r *Requester) []place {
	key := fmt.Sprintf("%s %s %d", asked(r), r.Form.Hash(), r.Form.GPUs)
	if known, ok := d.near[key]; ok {
		return known
	}
	var asleep, stored []place
	wanted := modelref.FromArgs(r.Form.Args)
	called := d.Called(wanted)
	names := map[string]namer{}            // by image, which is all that launchers add to the form
	whole := map[*launcherapi.Model]bool{} // what is wanted: launchers that say the same share what they say
	for _, l := range d.serve(r) {
		form, _ := r.Form.On(l.Spec)
		name, known := names[form.Image]
		if !known {
			name = namerOf(form)
			names[form.Image] = name
		}
		if !l.Silent {
			asleep = append(asleep, d.sleepers(l, name)...)
		}
		if there, memory := l.stores(wanted, called, whole); there && r.Form.ModelCache != launcherapi.ModelCacheOff {
			stored = append(stored, place{node: l.Node, memory: memory})
		}
	}
	slices.SortFunc(asleep, func(a, b place) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(a.node, b.node), strings.Compare(a.sleeper.Instance, b.sleeper.Instance))
	})
	slices.SortFunc(stored, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.weight(), a.weight()), strings.Compare(a.node, b.node))
	})
	d.near[key] = append(asleep, stored...)
	return d.near[key]
}

// sleepers are those of a launcher that have such a name, and whose GPUs are free.
func (d *decision) sleepers(l *Launcher, name namer) (all []place) {
	for id := range l.Instances {
		if !strings.HasPrefix(id, name.begins) {
			continue
		}
		i := l.Instances[id]
		if i.State != string(launcher.Sleeping) || len(i.GPUUUIDs) != name.gpus || id != name.of(i.GPUUUIDs) || !d.free(l.Node, i.GPUUUIDs) {
			continue
		}
		at := place{node: l.Node, sleeper: Sleeper{l.UID, id}, gpus: i.GPUUUIDs}
		if i.LastUsedAt != nil {
			at.used = *i.LastUsedAt
		}
		all = append(all, at)
	}
	return all
}

// stores says that a launcher has a model whole in its store, and whether main memory
// holds that. It is among those of the ids. whole is what is known of models already.
func (l *Launcher) stores(name modelref.Name, ids []string, whole map[*launcherapi.Model]bool) (there, memory bool) {
	for _, id := range ids {
		m, has := l.Models[id]
		if !has {
			continue
		}
		is, known := whole[m.Model]
		if !known {
			is = nodeview.Whole(m, name)
			whole[m.Model] = is
		}
		if is {
			there, memory = true, memory || m.PageCache == launcherapi.PageCacheWhole
		}
	}
	return there, memory
}

// weight is that of the node of a store.
func (p place) weight() int32 {
	if p.memory {
		return weightMemory
	}
	return weightDisk
}

// namer names the instances of a form, by their GPUs.
type namer struct {
	of     func(gpus []string) string
	begins string // what all these names begin with: most others do not
	gpus   int
}

func namerOf(form nominal.Form) namer {
	of := nominal.InstanceIDs(form)
	name := of(nil)
	return namer{of, name[:strings.LastIndex(name, "-")+1], form.GPUs}
}
