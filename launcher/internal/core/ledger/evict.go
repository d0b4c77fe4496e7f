package ledger

import (
	"errors"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// evictions answers whether a swap can succeed, and which sleepers have to be
// evicted for it, in the order of their eviction: least recently used first, pinned
// ones and the parties of any swap never. A budget of sleepers that is exceeded
// counts only where this swap adds sleepers or bytes. A refusal touches nothing and
// names the holder and the numbers.
func evictions(w World, p Plan) (evict []string, err error) {
	after := w.after(p)
	protected := slices.Clone(p.Out)
	if p.Room != nil {
		protected = append(protected, p.Room.ID)
	}
	worse := after.worseThan(w)
	for {
		refusal := after.judge(p, worse)
		if refusal == nil {
			return evict, nil
		}
		victim, ok := after.leastRecentlyUsed(refusal, protected)
		if !ok {
			return nil, refusal
		}
		evict = append(evict, victim)
		after = after.without(victim)
	}
}

// Enforce answers which sleepers have to go for the budgets of sleepers to hold,
// least recently used first. The instance named is spared. An instance that a swap
// moves does not count before the swap is over: it may sleep and be about to wake
// or to end, and the swap's own decision has counted it.
func Enforce(w World, spare string) (evict []string) {
	w.Instances = slices.DeleteFunc(slices.Clone(w.Instances), func(i Instance) bool { return i.SwapID != "" })
	for {
		refusal := w.overBudget(anywhere)
		if refusal == nil {
			return evict
		}
		victim, ok := w.leastRecentlyUsed(refusal, []string{spare})
		if !ok {
			return evict
		}
		evict = append(evict, victim)
		w = w.without(victim)
	}
}

func (w World) judge(p Plan, worse where) *launcher.Error {
	if p.Room != nil {
		if e, ok := errors.AsType[*launcher.Error](Admit(w, *p.Room)); ok {
			return e
		}
	}
	return w.overBudget(worse)
}

// where says whether a bound counts on a GPU or, without a uuid, on the host.
type where func(bound, uuid string) bool

func anywhere(string, string) bool { return true }

// worseThan tells where there are more sleepers than before, or where sleepers hold
// more. How much a new sleeper holds may be unknown: that there is one more is
// enough.
func (w World) worseThan(before World) where {
	return func(bound, uuid string) bool {
		count, bytes := w.sleepers(uuid)
		was, held := before.sleepers(uuid)
		return count > was || bound != BoundMaxSleepersPerGPU && bytes > held
	}
}

// after is the world as it will be when the instances that leave have left and the
// one that comes in has not come: those that leave have given back their memory but
// for the residue.
func (w World) after(p Plan) World {
	w = w.clone()
	for n := range w.Instances {
		i := &w.Instances[n]
		if p.Room != nil && i.ID == p.Room.ID && i.State == launcher.Sleeping {
			w.vacate(i, nil)
			i.Released = true // the plan's room counts it
			continue
		}
		if !slices.Contains(p.Out, i.ID) {
			continue
		}
		if p.Stop {
			// The instance sleeps until the one that comes in is awake, and only
			// then ends: until then its residue takes room, and no budget counts
			// it.
			w.vacate(i, i.Residue)
			i.Now, i.State, i.Released = nil, launcher.Stopped, true
			continue
		}
		w.vacate(i, i.Residue)
		i.State = launcher.Sleeping
	}
	return w
}

// vacate takes an instance's memory off the GPUs, leaving a residue: the measured
// bytes, or the charge where the driver tells none.
func (w World) vacate(i *Instance, residue map[string]uint64) {
	for _, uuid := range i.GPUs {
		gpu := w.GPUs[uuid]
		held := i.Now[uuid]
		if !gpu.ProcessesKnown {
			held, _ = i.Charge(uuid)
		}
		gpu.UsedBytes = sub(gpu.UsedBytes, sub(held, residue[uuid]))
		w.GPUs[uuid] = gpu
	}
	i.Now = residue
}

func (w World) without(id string) World {
	w = w.clone()
	for n := range w.Instances {
		if i := &w.Instances[n]; i.ID == id {
			w.vacate(i, nil)
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

// overBudget gives the refusal for the first budget of sleepers that counts and is
// exceeded; nil: none is.
func (w World) overBudget(counts where) *launcher.Error {
	for _, uuid := range append(w.uuids(), "") {
		count, bytes := w.sleepers(uuid)
		bounds := []bounded{
			{BoundMaxSleepersPerGPU, count, uint64(max(w.Budget.MaxSleepersPerGPU, 0))},
			{BoundMaxSleeperBytesPerGPU, bytes, w.Budget.MaxSleeperBytesPerGPU},
		}
		if uuid == "" {
			bounds = []bounded{{BoundMaxHostSleeperBytes, bytes, w.Budget.MaxHostSleeperBytes}}
		}
		for _, b := range bounds {
			if e := w.over(b.name, uuid, b.have, b.limit); e != nil && counts(b.name, uuid) {
				return e
			}
		}
	}
	return nil
}

type bounded struct {
	name        string
	have, limit uint64
}

// sleepers counts the sleepers of a GPU, or without a uuid of the whole host, and
// sums the bytes that they hold there. A victim of a swap counts no more: its place
// is given away.
func (w World) sleepers(uuid string) (count, bytes uint64) {
	for _, i := range w.Instances {
		if i.State != launcher.Sleeping || i.Released || i.Victim || uuid != "" && !slices.Contains(i.GPUs, uuid) {
			continue
		}
		held := i.Host
		if uuid != "" {
			held, _ = i.Charge(uuid)
		}
		count, bytes = count+1, bytes+held
	}
	return count, bytes
}

// HostSleeperBytes is the main memory that sleepers hold.
func (w World) HostSleeperBytes() (bytes uint64) {
	for _, i := range w.Instances {
		if i.State == launcher.Sleeping && !i.Released {
			bytes += i.Host
		}
	}
	return bytes
}

func (w World) over(bound, uuid string, have, limit uint64) *launcher.Error {
	if limit == 0 || have <= limit {
		return nil
	}
	fit := launcherapi.Fit{GPUUUID: uuid, Bound: bound, Needed: have, Limit: limit}
	where := "of this host"
	if uuid != "" {
		where = "of GPU " + uuid
		fit.Holders = w.Holders(uuid, "")
	}
	return launcher.DoesNotFit(fit, "the sleepers %s would come to %d, and %s is %d; those that may be evicted do not suffice",
		where, have, bound, limit)
}

// leastRecentlyUsed picks the sleeper whose eviction helps against a refusal.
func (w World) leastRecentlyUsed(refusal *launcher.Error, protected []string) (string, bool) {
	best := -1
	for n, i := range w.Instances {
		if i.State != launcher.Sleeping || i.Released || i.Pinned || i.SwapID != "" || slices.Contains(protected, i.ID) {
			continue
		}
		if !w.helps(i, refusal.Fit) {
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

func (w World) helps(i Instance, fit *launcherapi.Fit) bool {
	if fit.GPUUUID == "" {
		return fit.Bound != BoundMaxHostSleeperBytes || i.Host > 0
	}
	if !slices.Contains(i.GPUs, fit.GPUUUID) {
		return false
	}
	charge, _ := i.Charge(fit.GPUUUID)
	return fit.Bound == BoundMaxSleepersPerGPU || charge > 0
}

func (w World) uuids() []string {
	out := make([]string, 0, len(w.GPUs))
	for uuid := range w.GPUs {
		out = append(out, uuid)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
