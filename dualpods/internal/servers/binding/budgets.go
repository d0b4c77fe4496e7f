package binding

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// sleeperBudgets are limits for the sleepers of a launcher. A launcher enforces those that
// it was started with. If the LauncherConfig lowers them, the launcher is replaced once no
// requester is bound to it, as spec.rollout allows; until then the controller enforces the
// lowered ones.
type sleeperBudgets struct {
	perGPU      uint64 // how many may sleep on a GPU
	bytesPerGPU uint64 // how much memory of a GPU they may hold
	hostBytes   uint64 // how much main memory they may hold
}

const noLimit = math.MaxUint64

// loweredBudgets returns the budgets of the LauncherConfig that are lower than those that
// the launcher was started with, and no limit for the others; ok: there is one.
func (l *launcherPod) loweredBudgets() (lowered sleeperBudgets, ok bool) {
	if l.of == nil {
		return lowered, false
	}
	b := l.of.Spec.Budgets
	perGPU := uint64(noLimit)
	if b.MaxSleepersPerGPU != nil {
		perGPU = uint64(*b.MaxSleepersPerGPU)
	}
	lower := func(limit uint64, flag string) uint64 {
		if limit >= l.startedWith(flag) {
			return noLimit
		}
		ok = true
		return limit
	}
	lowered = sleeperBudgets{
		perGPU:      lower(perGPU, "--budgets-max-sleepers-per-gpu"),
		bytesPerGPU: lower(bytesOf(b.MaxSleeperBytesPerGPU), "--budgets-max-sleeper-bytes-per-gpu"),
		hostBytes:   lower(bytesOf(b.MaxHostSleeperBytes), "--budgets-max-host-sleeper-bytes"),
	}
	return lowered, ok
}

func bytesOf(q *resource.Quantity) uint64 {
	if q == nil || q.Value() <= 0 {
		return noLimit
	}
	return uint64(q.Value())
}

// startedWith returns the value of a flag in the arguments of the launcher, as
// launcherpool.Template writes it; without the flag there is no limit.
func (l *launcherPod) startedWith(flag string) uint64 {
	c := podmeta.Container(&l.pod.Spec, podmeta.ServingContainer)
	if c == nil {
		return noLimit
	}
	for _, arg := range c.Args {
		if value, is := strings.CutPrefix(arg, flag+"="); is {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && n > 0 {
				return n
			}
		}
	}
	return noLimit
}

// budget is one limit, and how much a sleeper counts against it.
type budget struct {
	limit uint64
	uses  func(launcherapi.Instance) uint64
}

func (b budget) exceeded(sleepers []launcherapi.Instance) bool {
	var used uint64
	for _, i := range sleepers {
		used += b.uses(i)
	}
	return used > b.limit
}

// all returns the limits, of each GPU and of the node.
func (b sleeperBudgets) all(sleepers []launcherapi.Instance) []budget {
	gpus := map[string]bool{}
	for _, i := range sleepers {
		for _, gpu := range i.GPUUUIDs {
			gpus[gpu] = true
		}
	}
	budgets := []budget{{b.hostBytes, func(i launcherapi.Instance) uint64 { return i.HostBytes }}}
	for _, gpu := range slices.Sorted(maps.Keys(gpus)) {
		count := func(i launcherapi.Instance) uint64 {
			if slices.Contains(i.GPUUUIDs, gpu) {
				return 1
			}
			return 0
		}
		budgets = append(budgets, budget{b.perGPU, count}, budget{b.bytesPerGPU, func(i launcherapi.Instance) uint64 { return i.GPUBytes[gpu] }})
	}
	return budgets
}

// surplus returns the sleepers to evict so that the budgets hold, least recently used
// first. As in the launcher's own budgets, neither the sleeper that fell asleep last nor a
// pinned one is evicted, and instances that a swap has claimed do not count. Sleepers that
// are kept do not count either: they are to wake. What somebody made by hand counts, and
// is theirs.
func surplus(budgets sleeperBudgets, instances map[string]launcherapi.Instance, kept func(id string) bool) (evict []string) {
	var sleepers []launcherapi.Instance
	for id, i := range instances {
		if launcher.State(i.State) == launcher.Sleeping && i.SwapID == "" && !kept(id) {
			sleepers = append(sleepers, i)
		}
	}
	if len(sleepers) == 0 {
		return nil
	}
	newest := slices.MaxFunc(sleepers, func(a, b launcherapi.Instance) int {
		return cmp.Or(a.StateSince.Compare(b.StateSince), cmp.Compare(a.Revision, b.Revision))
	}).InstanceID
	slices.SortFunc(sleepers, func(a, b launcherapi.Instance) int {
		return cmp.Or(decide.LastUse(a).Compare(decide.LastUse(b)), strings.Compare(a.InstanceID, b.InstanceID))
	})
	for _, b := range budgets.all(sleepers) {
		for b.exceeded(sleepers) {
			at := slices.IndexFunc(sleepers, func(i launcherapi.Instance) bool {
				return i.InstanceID != newest && !decide.Pinned(i) && decide.Ours(i) && b.uses(i) > 0
			})
			if at < 0 {
				break
			}
			evict = append(evict, sleepers[at].InstanceID)
			sleepers = slices.Delete(sleepers, at, at+1)
		}
	}
	return evict
}

// surplusOf returns the sleepers of a launcher that exceed lowered budgets.
func (w *world) surplusOf(l *launcherPod, view nodeview.View) []string {
	budgets, ok := l.loweredBudgets()
	if !ok {
		return nil
	}
	return surplus(budgets, view.Instances, func(id string) bool { return l.holder(id) != "" || w.mayServe(l, id) })
}
