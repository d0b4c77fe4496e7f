package ledger

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// evictions decides whether a swap can succeed, and which sleepers it has to evict, in
// that order. The least recently used sleeper goes first. Pinned sleepers and
// instances that a swap has claimed are never evicted. An exceeded budget of sleepers
// refuses the swap only if the swap adds sleepers or bytes to it. A refusal names the
// holders and the numbers.
//
// An instance that leaves for the first time will hold asleep what is not known yet. evictions takes
// it to be the most that another one holds, so that a swap does not have to find out that memory is
// missing when that instance sleeps. A swap that is possible only if it is less is tried nevertheless.
func evictions(w World, p launcher.Plan) (evict []string, err error) {
	evict, err = evictionsAfter(w, w.afterLeaving(p, w.expectedResidue), p)
	if err != nil {
		return evictionsAfter(w, w.afterLeaving(p, measuredResidue), p)
	}
	return evict, nil
}

func evictionsAfter(w, after World, p launcher.Plan) (evict []string, err error) {
	protected := slices.Clone(p.Out)
	if p.Room != nil {
		protected = append(protected, p.Room.ID)
	}
	worse := after.boundsMadeWorse(w)
	for {
		refusal := after.swapRefusal(p, worse)
		if refusal == nil {
			return evict, nil
		}
		victim, ok := after.leastRecentlyUsed(refusal, protected)
		if !ok {
			return nil, refusal
		}
		evict = append(evict, victim)
		after = after.withoutEvicted(victim)
	}
}

// Enforce lists the sleepers to evict so that the budgets of sleepers hold, least
// recently used first. It never lists the instance spare. An instance that a swap has
// claimed does not count until the swap is over. That instance may sleep now and wake
// or end soon, and the swap's own decision has counted it.
func Enforce(w World, spare string) (evict []string) {
	w.Instances = slices.DeleteFunc(slices.Clone(w.Instances), func(i Instance) bool { return i.SwapID != "" })
	for {
		refusal := w.budgetRefusal(everyBound)
		if refusal == nil {
			return evict
		}
		victim, ok := w.leastRecentlyUsed(refusal, []string{spare})
		if !ok {
			return evict
		}
		evict = append(evict, victim)
		w = w.withoutEvicted(victim)
	}
}

func (w World) swapRefusal(p launcher.Plan, worse boundFilter) *launcher.Error {
	if p.Room != nil {
		if e, ok := errors.AsType[*launcher.Error](Admit(w, *p.Room)); ok {
			return e
		}
	}
	return w.budgetRefusal(worse)
}

// boundFilter reports whether a bound counts for a GPU or, without a uuid, for the
// host.
type boundFilter func(bound, uuid string) bool

func everyBound(string, string) bool { return true }

// boundsMadeWorse returns the bounds for which there are more sleepers than before, or
// for which sleepers hold more bytes. The bytes of a new sleeper may be unknown, so one
// more sleeper is enough.
func (w World) boundsMadeWorse(before World) boundFilter {
	return func(bound, uuid string) bool {
		count, bytes := w.sleepers(uuid)
		was, held := before.sleepers(uuid)
		return count > was || bound != BoundMaxSleepersPerGPU && bytes > held
	}
}

// afterLeaving returns the World between leaving and coming in. The instances that
// leave have given back their memory but for the residue, and In holds none yet.
func (w World) afterLeaving(p launcher.Plan, residue func(Instance) map[string]uint64) World {
	w = w.clone()
	for n := range w.Instances {
		i := &w.Instances[n]
		if p.Room != nil && i.ID == p.Room.ID && i.State == launcher.Sleeping {
			w.giveBackMemory(i, nil)
			i.Released = true // p.Room counts the instance
			continue
		}
		if !slices.Contains(p.Out, i.ID) {
			continue
		}
		if p.Stop {
			// The instance sleeps until In is awake, and is stopped then. Until
			// then its residue takes room, but no budget counts it as a sleeper.
			w.giveBackMemory(i, residue(*i))
			i.HeldNow, i.State, i.Released = nil, launcher.Stopped, true
			continue
		}
		w.giveBackMemory(i, residue(*i))
		i.State = launcher.Sleeping
	}
	return w
}

func measuredResidue(i Instance) map[string]uint64 { return i.Residue }

// expectedResidue returns what an instance will still hold asleep: what was measured or, where that
// is not known, the most that was measured of an instance on any GPU.
func (w World) expectedResidue(i Instance) map[string]uint64 {
	var most uint64
	for _, other := range w.Instances {
		for _, bytes := range other.Residue {
			most = max(most, bytes)
		}
	}
	out := map[string]uint64{}
	if i.Restarts {
		return out
	}
	for _, uuid := range i.GPUs {
		out[uuid] = cmp.Or(i.Residue[uuid], most)
	}
	return out
}

// giveBackMemory subtracts an instance's memory from its GPUs, but for the residue. It
// uses the measured bytes, or the charge if the driver reports no processes.
func (w World) giveBackMemory(i *Instance, residue map[string]uint64) {
	for _, uuid := range i.GPUs {
		gpu := w.GPUs[uuid]
		held := i.HeldNow[uuid]
		if !gpu.ProcessesKnown {
			held, _ = i.Charge(uuid)
		}
		gpu.UsedBytes = sub(gpu.UsedBytes, sub(held, residue[uuid]))
		w.GPUs[uuid] = gpu
	}
	i.HeldNow = residue
}

func (w World) withoutEvicted(id string) World {
	w = w.clone()
	for n := range w.Instances {
		if i := &w.Instances[n]; i.ID == id {
			w.giveBackMemory(i, nil)
			i.State, i.Released = launcher.Stopped, true
		}
	}
	return w
}

func (w World) clone() World {
	w.Instances = slices.Clone(w.Instances)
	gpus := make(map[string]GPU, len(w.GPUs))
	for k, v := range w.GPUs {
		gpus[k] = v
	}
	w.GPUs = gpus
	return w
}

// budgetRefusal returns the refusal for the first exceeded budget of sleepers that
// counts, or nil if there is none.
func (w World) budgetRefusal(counts boundFilter) *launcher.Error {
	for _, uuid := range append(w.uuids(), "") {
		count, bytes := w.sleepers(uuid)
		bounds := []budgetUse{
			{BoundMaxSleepersPerGPU, count, uint64(max(w.Budget.MaxSleepersPerGPU, 0))},
			{BoundMaxSleeperBytesPerGPU, bytes, w.Budget.MaxSleeperBytesPerGPU},
		}
		if uuid == "" {
			bounds = []budgetUse{{BoundMaxHostSleeperBytes, bytes, w.Budget.MaxHostSleeperBytes}}
		}
		for _, b := range bounds {
			if e := w.refusalIfOver(b.name, uuid, b.have, b.limit); e != nil && counts(b.name, uuid) {
				return e
			}
		}
	}
	return nil
}

type budgetUse struct {
	name        string
	have, limit uint64
}

// sleepers counts the sleepers of a GPU and sums the bytes that they hold there;
// without a uuid it does so for the whole host. It leaves out victims of swaps, whose
// places are promised to others. A sleeper that nobody could measure counts with what was
// measured before: for a budget no other sleeper is evicted on a suspicion.
func (w World) sleepers(uuid string) (count, bytes uint64) {
	for _, i := range w.Instances {
		if i.State != launcher.Sleeping || i.Released || i.Victim || i.Restarts || uuid != "" && !slices.Contains(i.GPUs, uuid) {
			continue
		}
		held := i.HostBytes
		if uuid != "" {
			held, _ = i.asleepBytes(uuid)
		}
		count, bytes = count+1, bytes+held
	}
	return count, bytes
}

// HostSleeperBytes returns the main memory that sleepers hold.
func (w World) HostSleeperBytes() (bytes uint64) {
	for _, i := range w.Instances {
		if i.State == launcher.Sleeping && !i.Released {
			bytes += i.HostBytes
		}
	}
	return bytes
}

func (w World) refusalIfOver(bound, uuid string, have, limit uint64) *launcher.Error {
	if limit == 0 || have <= limit {
		return nil
	}
	fit := launcherapi.Fit{GPUUUID: uuid, Bound: bound, Needed: have, Limit: limit}
	where := "of this host"
	if uuid != "" {
		where = "of GPU " + uuid
		fit.Holders = w.Holders(uuid, "")
	}
	return launcher.DoesNotFit(fit, "the sleeping instances %s would come to %s, but %s is %s; evicting those that may be evicted is not enough",
		where, amount(bound, have), bound, amount(bound, limit))
}

// amount writes a number that a bound limits: instances, or bytes.
func amount(bound string, n uint64) string {
	if bound == BoundMaxSleepersPerGPU {
		return strconv.FormatUint(n, 10)
	}
	return launcher.BytesText(n)
}

// leastRecentlyUsed returns the least recently used sleeper whose eviction helps
// against the refusal.
func (w World) leastRecentlyUsed(refusal *launcher.Error, protected []string) (string, bool) {
	best := -1
	for n, i := range w.Instances {
		if i.State != launcher.Sleeping || i.Released || i.Pinned || i.SwapID != "" || slices.Contains(protected, i.ID) {
			continue
		}
		if !w.evictionHelps(i, refusal.Fit) {
			continue
		}
		if best < 0 || i.LastUsed.Before(w.Instances[best].LastUsed) {
			best = n
		}
	}
	if best < 0 {
		return "", false
	}
	return w.Instances[best].ID, true
}

func (w World) evictionHelps(i Instance, fit *launcherapi.Fit) bool {
	if fit.GPUUUID == "" {
		return fit.Bound != BoundMaxHostSleeperBytes || i.HostBytes > 0
	}
	if !slices.Contains(i.GPUs, fit.GPUUUID) {
		return false
	}
	charge, _ := i.Charge(fit.GPUUUID)
	return fit.Bound == BoundMaxSleepersPerGPU && !i.Restarts || charge > 0
}

func (w World) uuids() []string {
	out := make([]string, 0, len(w.GPUs))
	for uuid := range w.GPUs {
		out = append(out, uuid)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
