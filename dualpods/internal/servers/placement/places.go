package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// nearbyPlaces returns where the model of a requester is near. Sleepers on free GPUs come first,
// the most recently used one before the others. Stores follow, those whose model is in
// main memory before the others.
func (d *decision) nearbyPlaces(r *Requester) []place {
	key := fmt.Sprintf("%s %s %d", serveKey(r), r.Form.Hash(), r.Form.GPUs)
	if known, ok := d.near[key]; ok {
		return known
	}
	var asleep, stored []place
	wanted := modelref.FromArgs(r.Form.Args)
	candidates := d.CandidateIDs(wanted)
	names := map[string]instanceNames{}    // by image, the only part of the form that a launcher adds
	whole := map[*launcherapi.Model]bool{} // results of nodeview.Whole: launchers share equal models
	for _, l := range d.serving(r) {
		on, _ := r.Form.On(l.Spec)
		name, known := names[on.Image]
		if !known {
			name = instanceNamesOf(on)
			names[on.Image] = name
		}
		if !l.Silent {
			asleep = append(asleep, d.sleepers(l, name)...)
		}
		if there, memory := l.storesModel(wanted, candidates, whole); there && r.Form.ModelCache != launcherapi.ModelCacheOff {
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

// sleepers returns the sleepers of a launcher that have such a name and whose GPUs are
// free.
func (d *decision) sleepers(l *Launcher, name instanceNames) (all []place) {
	for id := range l.Instances {
		if !strings.HasPrefix(id, name.prefix) {
			continue
		}
		i := l.Instances[id]
		if i.State != string(launcher.Sleeping) || len(i.GPUUUIDs) != name.gpus || id != name.of(i.GPUUUIDs) || !d.gpusFree(l.Node, i.GPUUUIDs) {
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

// storesModel reports whether a launcher has a model whole in its store, and whether main
// memory holds it. ids are the candidates. whole caches the results of nodeview.Whole.
func (l *Launcher) storesModel(name modelref.Name, ids []string, whole map[*launcherapi.Model]bool) (there, memory bool) {
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

// weight returns the weight of a node whose store has the model.
func (p place) weight() int32 {
	if p.memory {
		return weightMemory
	}
	return weightDisk
}

// instanceNames has the names of the instances of a form, by their GPUs.
type instanceNames struct {
	of     func(gpus []string) string
	prefix string // prefix of all these names, and of few others
	gpus   int
}

func instanceNamesOf(f form.Form) instanceNames {
	of := form.InstanceIDs(f)
	name := of(nil)
	return instanceNames{of, name[:strings.LastIndex(name, "-")+1], f.GPUs}
}
