package decide

import (
	"cmp"
	"fmt"

	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Changing is what the table changing reads: a requester whose model is being changed in place.
type Changing struct {
	*Bound
	ModelCache string // from where a new instance has its model where Form does not say
	Neighbours Neighbours
}

// changing returns the requester of b with what its next record needs.
func (o *Observation) changing(b *Bound) *Changing {
	return &Changing{Bound: b, ModelCache: o.ModelCache, Neighbours: o.Neighbours}
}

// changing: the controller of ModelServings has the models of a group changed together. It tells the
// requesters by an annotation, and says go and commit to the swaps; here the swap is asked for, and
// the record follows it.
var changing = TableOf[Changing]{
	Name:     "changing",
	Sentence: "The requester is told of a change of its model in place, or its record has one",
	Sees:     func(s *seen) *Changing { return s.changing },
	Rows: []RowOf[Changing]{
		{"changed", "the swap of the change has ended well",
			(*Changing).isChanged, ChangeRecord, func(c *Changing) Step {
				return Step{Why: "instance " + c.nextID() + " has taken the place of instance " + c.instanceID(), Record: c.changed()}
			}},
		{"change goes on", "the change failed after all of the group were committed; no swap of it is under way",
			(*Changing).goesForward, ChangeRecord, (*Changing).forward},
		{"change withdrawn, waits", "the requester is not told of the change any more; the launcher may have a swap for it that has not claimed an instance, and was not asked to call it off",
			(*Changing).isWithdrawnQueued, CallOff, ofNext(say("the change to instance %s was withdrawn, and its swap may be waiting for its turn", (*Changing).nextID))},
		{"change withdrawn, under way", "the requester is not told of the change any more; the launcher has a swap under way for it, or is asked to call one off",
			(*Changing).isWithdrawnRunning, Nothing, say("the change to instance %s was withdrawn, and its swap is being undone", (*Changing).nextID)},
		{"change withdrawn", "the requester is not told of the change any more, in all other cases",
			(*Changing).isWithdrawn, ChangeRecord, (*Changing).unchanged},
		{"change failed, noted", "the change failed, as the record says",
			(*Changing).failureNoted, Nothing, say("the change failed, and the others of its group are told: %s", func(c *Changing) string { return c.Record.Change.Failure })},
		{"cannot be changed", "no change is noted; the input cannot be used, or the launcher does not have what it asks for",
			(*Changing).cannotBeChanged, ChangeRecord, func(c *Changing) Step { return c.failed(c.misfit(), true) }},
		{"nothing to change", "no change is noted; the instance is what is asked for",
			(*Changing).isAsAsked, ChangeRecord, (*Changing).asItIs},
		{"change not noted", "no change is noted",
			(*Changing).isNotNoted, ChangeRecord, (*Changing).note},
		{"change outdated", "the swap of the change was not asked for; its specification has changed since it was noted",
			(*Changing).isOutdated, ChangeRecord, func(c *Changing) Step {
				return c.failed("its specification was edited while it was being changed", false)
			}},
		{"left of an earlier try, being deleted", "the swap of the change was not asked for; it is no rank, and the change was undone before; the instance that was to be woken is being deleted",
			(*Changing).leftoverGoes, Nothing, say("instance %s is left of an earlier try, and is being deleted", (*Changing).nextID)},
		{"left of an earlier try", "the swap of the change was not asked for; it is no rank, and the change was undone before; there is an instance that was to be woken",
			(*Changing).isLeftover, DeleteInstance, ofNext(say("instance %s is left of an earlier try: the swap of another server of the group may have to evict it", (*Changing).nextID))},
		{"change noted otherwise", "the swap of the change was not asked for; it is a rank, and was not told of the start of its new server; the instance that is to come was made or deleted since the change was noted. Or it is no rank, the change was undone before, and the instance that was to be woken is gone",
			(*Changing).isNotedOtherwise, ChangeRecord, (*Changing).noteAgain},
		{"change waits for ranks", "the swap of the change was not asked for; it is a rank, and was not told of the start of its new server",
			(*Changing).isToldOfNoNextServer, Nothing, say("instance %s is to take the place of instance %s, together with the other ranks of its server", (*Changing).nextID, (*Changing).instanceID)},
		{"change not asked", "the swap of the change was not asked for",
			(*Changing).isNotAsked, Swap, ofNext(say("instance %s is to take the place of instance %s", (*Changing).nextID, (*Changing).instanceID))},
		{"change prepared, ready", "the launcher has prepared the swap of the change; the requester is ready, and was not told so in vain a moment ago",
			(*Changing).isPreparedReady, BecomeUnready, say("instance %s is about to sleep", (*Changing).instanceID)},
		{"change prepared, shown", "the launcher has prepared the swap of the change; labels, status or gate say that the requester serves",
			(*Changing).isPreparedShown, Retract, say("instance %s is about to sleep", (*Changing).instanceID)},
		{"change under way", "the swap of the change is not over",
			(*Changing).isUnderWay, Nothing, say("the launcher has a swap under way for the change to instance %s", (*Changing).nextID)},
		{"change makes room", "the swap of the change came to nothing for want of device memory; sleepers of other launchers of the node hold what is missing, and none was asked to go",
			(*Changing).isRoomTakenElsewhere, Evict, ofNext((*Changing).evictForRoom)},
		{"change failed", "in all other cases",
			always[Changing], ChangeRecord, func(c *Changing) Step { return c.failed(c.failure()) }},
	},
}

// ofNext has a step be about the change of the record.
func ofNext[V any](then func(*V) Step) func(*V) Step {
	return func(v *V) Step {
		step := then(v)
		step.OfNext = true
		return step
	}
}

// isChanging reports whether the requester is told of a change in place that its record does not have
// behind it. A change that failed leaves the record's own instance as it is, which serves until the
// change is withdrawn.
func (b *Bound) isChanging() bool {
	to := b.Requester.SwapTo
	switch c := b.Record.Change; {
	case c == nil:
		return to.ID() != "" && to.ID() != b.Record.ChangedBy && b.instanceAwake()
	case c.To == to.ID() && c.Failure != "" && !to.Forward:
		return !b.instanceAwake()
	default:
		return true
	}
}

func (b *Bound) nextID() string {
	if b.Record.Change == nil {
		return ""
	}
	return b.Record.Change.Instance
}

// nextIs reports whether the instance that is to come is there, in one of these states.
func (b *Bound) nextIs(states ...launcher.State) bool {
	next := &Bound{Instance: b.NextInstance}
	return next.instanceIn(states...)
}

// nextAwake reports whether the instance that is to come is awake.
func (b *Bound) nextAwake() bool { return b.nextIs(launcher.Awake) }

// hasChanged reports whether the instance has come that is to take the place of the record's own.
func (b *Bound) hasChanged() bool { return b.nextID() != "" && b.nextAwake() }

// inNextSwap reports whether a swap has claimed the instance of the record or the one that is to come.
func (b *Bound) inNextSwap() bool {
	return b.Instance != nil && b.Instance.SwapID != "" || b.NextInstance != nil && b.NextInstance.SwapID != ""
}

// nextMayBeQueued reports whether the swap of the change is to be called off. An earlier process may
// have asked for one that this one does not know.
func (b *Bound) nextMayBeQueued() bool {
	return b.nextID() != "" && !b.NextAttempt.Over && !b.Calls.NextCallOff && !b.inNextSwap()
}

// nextSwapRuns reports whether the launcher has a swap under way for the change.
func (b *Bound) nextSwapRuns() bool {
	return b.nextID() != "" && (b.NextAttempt.Asked && !b.NextAttempt.Over || b.Calls.NextCallingOff || b.inNextSwap())
}

// nextIsHeld reports whether the swap of the change ends only with the instance that is to come.
func (b *Bound) nextIsHeld() bool {
	return b.nextID() != "" && b.nextIs(launcher.Starting, launcher.Awake) && b.NextInstance.SwapID != ""
}

// isChanged reports whether the swap of the change has ended well. A launcher may have forgotten what
// it came to: then the two instances tell.
func (c *Changing) isChanged() bool {
	if c.nextID() == "" || c.isWithdrawn() {
		return false
	}
	if c.NextAttempt.Over && c.NextAttempt.Failure == "" {
		return true
	}
	return !c.NextAttempt.Asked && c.nextAwake() && !c.instanceAwake() && !c.inNextSwap()
}

// goesForward reports whether the requester gets its new model as any requester does, since its group
// has that for good.
func (c *Changing) goesForward() bool {
	return c.Requester.SwapTo.Forward && c.failureNoted() && !c.nextSwapRuns()
}

// changed returns the record of the instance that has come. Its next attempt is one of its own, since the
// swap of the change was in two halves. The swaps of a rank always are: its record keeps the attempt that
// the rank was told of, in the same words.
func (b *Bound) changed() podmeta.Binding {
	next := *b.Record.Next()
	if b.Requester.Rank.IsOne() && b.Requester.NextServer.Attempt == next.SwapKey() {
		return next
	}
	next.Attempt++
	next.New = b.NextInstance == nil
	return next
}

func (c *Changing) forward() Step {
	next := c.Record.Next()
	if next == nil {
		noted := c.newChange()
		next = (&podmeta.Binding{RequesterUID: c.Record.RequesterUID, Namespace: c.Record.Namespace, Name: c.Record.Name, GPUs: c.Record.GPUs, Change: &noted}).Next()
	}
	next.Attempt++
	next.Failures, next.Failure, next.RetryAt, next.New = 1, c.Record.Change.Failure, c.Now.Add(FirstPause), c.NextInstance == nil
	return Step{Why: "its group has the new model for good: " + next.Failure, Record: *next}
}

// isWithdrawn reports whether the requester is not told of the change any more that its record has.
func (c *Changing) isWithdrawn() bool {
	return c.Record.Change != nil && c.Record.Change.To != c.Requester.SwapTo.ID()
}

func (c *Changing) isWithdrawnQueued() bool  { return c.isWithdrawn() && c.nextMayBeQueued() }
func (c *Changing) isWithdrawnRunning() bool { return c.isWithdrawn() && c.nextSwapRuns() }

func (c *Changing) unchanged() Step {
	record := *c.Record
	record.Change = nil
	return Step{Why: "the change was withdrawn: instance " + record.Instance + " stays", Record: record}
}

// failureNoted reports whether the record says that the change failed.
func (c *Changing) failureNoted() bool {
	return c.Record.Change != nil && c.Record.Change.Failure != ""
}

// isNotNoted reports whether the record has nothing of the change.
func (c *Changing) isNotNoted() bool { return c.Record.Change == nil }

func (c *Changing) cannotBeChanged() bool { return c.isNotNoted() && c.misfit() != "" }

// misfit says why what is asked for cannot be served by the launcher of the record; empty: it can.
func (c *Changing) misfit() string {
	switch {
	case len(c.Problems) > 0:
		return c.problems()
	case c.Form.LauncherConfig != "" && c.Form.LauncherConfig != c.Launcher.Config:
		return "it asks for LauncherConfig " + c.Form.LauncherConfig + ", and is bound to launcher " + c.Launcher.Name
	}
	return ""
}

// isAsAsked reports whether the instance of the record is what is asked for.
func (c *Changing) isAsAsked() bool { return c.isNotNoted() && c.Form.Hash() == c.Record.SpecHash }

func (c *Changing) asItIs() Step {
	record := *c.Record
	record.ChangedBy, record.ServingPort, record.Generation = c.Requester.SwapTo.ID(), c.Form.Port, c.Form.Generation
	return Step{Why: "instance " + record.Instance + " is what is asked for", Record: record}
}

// newChange returns the change to what is asked for now.
func (c *Changing) newChange() podmeta.Change {
	return podmeta.Change{
		To: c.Requester.SwapTo.ID(), Instance: form.InstanceID(c.Form, c.Record.GPUs), ServingPort: c.Form.Port, SpecHash: c.Form.Hash(), Generation: c.Form.Generation,
		Annotations: c.Form.Annotations, ModelCache: cmp.Or(c.Form.ModelCache, c.ModelCache), Since: c.Now,
	}
}

// note returns the record with the change.
func (c *Changing) note() Step {
	record, change := *c.Record, c.newChange()
	change.New, change.LogFrom = c.NextInstance == nil, logFrom(c.NextInstance)
	record.Change = &change
	return Step{Why: "its group is changed in place: instance " + change.Instance + " is to take the place of instance " + record.Instance, Record: record}
}

// isToldOfNoNextServer reports whether a rank may not ask for the swap of its change yet: not all ranks of
// its server have noted the change.
func (c *Changing) isToldOfNoNextServer() bool {
	return c.isNotAsked() && c.Requester.Rank.IsOne() && c.Requester.NextServer.Attempt != c.Record.Next().SwapKey()
}

// isNotedOtherwise reports whether the change would be noted in other words now. No launcher
// has been asked in these words yet.
func (c *Changing) isNotedOtherwise() bool {
	return c.isToldOfNoNextServer() && c.Record.Change.New != (c.NextInstance == nil) || c.beginsAnew() && c.NextInstance == nil
}

// beginsAnew reports whether a change that was undone before is yet to be asked for, and is to wake an
// instance. The swap of a server may have claimed the sleeper of another server of its group, to evict it.
// Both wait for each other then, at each try. So from the second try on, all servers get new instances.
// Those of ranks are deleted by the controller of ModelServings.
func (c *Changing) beginsAnew() bool {
	return c.isNotAsked() && !c.Requester.Rank.IsOne() && c.Requester.SwapTo.Try > 1 && !c.Record.Change.New
}

func (c *Changing) leftoverGoes() bool { return c.beginsAnew() && c.nextIs(launcher.Stopping) }

func (c *Changing) isLeftover() bool { return c.beginsAnew() && c.NextInstance != nil }

func (c *Changing) noteAgain() Step {
	record, change := *c.Record, *c.Record.Change
	change.New, change.LogFrom = c.NextInstance == nil, logFrom(c.NextInstance)
	record.Change = &change
	return Step{Why: "instance " + change.Instance + " was made or deleted before it could take the place of instance " + record.Instance, Record: record}
}

// failed returns the record with the failure of the change.
func (c *Changing) failed(why string, misfit bool) Step {
	record, change := *c.Record, podmeta.Change{To: c.Requester.SwapTo.ID()}
	if c.Record.Change != nil {
		change = *c.Record.Change
	}
	change.Failure, change.Misfit = cmp.Or(why, "it failed"), misfit
	record.Change = &change
	return Step{Why: "the change failed: " + change.Failure, Record: record}
}

// isRoomTakenElsewhere reports whether sleepers of other launchers can be deleted for the change.
func (c *Changing) isRoomTakenElsewhere() bool {
	return c.NextAttempt.Over && len(c.NextAttempt.Evicted) == 0 && len(c.victims()) > 0
}

func (c *Changing) victims() []Neighbour { return c.Neighbours.victims(c.NextAttempt.NoRoom) }

func (c *Changing) evictForRoom() Step {
	return Step{Victims: c.victims(), Why: fmt.Sprintf("GPU %s has %d bytes too few for the change, which %d sleepers of other launchers hold", c.NextAttempt.NoRoom.GPUUUID, Lacking(c.NextAttempt.NoRoom), len(c.victims()))}
}

// failure says what the swap of the change came to, and whether it was refused for want of room. If
// room is made, the next try may have it.
func (c *Changing) failure() (why string, misfit bool) {
	return c.NextAttempt.Failure, c.NextAttempt.Code == launcherapi.CodeDoesNotFit && len(c.NextAttempt.Evicted) == 0
}

// isOutdated reports whether the swap of the change would be asked for in other words than it was
// noted in.
func (c *Changing) isOutdated() bool {
	return c.isNotAsked() && (len(c.Problems) > 0 || c.Form.Hash() != c.Record.Change.SpecHash)
}

func (c *Changing) isNotAsked() bool { return c.nextID() != "" && !c.NextAttempt.Asked }

// isPrepared reports whether the swap of the change waits until all of the group have prepared.
func (c *Changing) isPrepared() bool {
	return !c.NextAttempt.Over && c.NextAttempt.Phase == launcherapi.PhaseGo
}

func (c *Changing) isPreparedReady() bool {
	return c.isPrepared() && c.IsReady() && !c.inVain(BecomeUnready)
}

func (c *Changing) isPreparedShown() bool { return c.isPrepared() && c.isPublished() }

func (c *Changing) isUnderWay() bool { return !c.NextAttempt.Over }
