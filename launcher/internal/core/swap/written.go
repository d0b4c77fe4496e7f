package swap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file writes and reads the records of swaps.

// Saved is the record of a swap on disk. It is written before the swap changes
// anything. It is removed when the swap is over or, if the swap has a key, when the
// key is forgotten. It holds no secret.
type Saved struct {
	Plan  launcher.Plan `json:"plan"`
	Began time.Time     `json:"began"`
	// Stamp is that of Began and of the plan's deadline.
	Stamp statedir.Stamp `json:"stamp,omitzero"`

	Phase   string   `json:"phase,omitempty"`   // the running phase
	Deleted []string `json:"deleted,omitempty"` // ids of the instances that a client has deleted while they left
	Evicted []string `json:"evicted,omitempty"` // ids of the victims that have ended
	Cut     int      `json:"cut,omitempty"`     // number of answers that were cut
	Canary  bool     `json:"canary,omitempty"`  // ask the instance that comes in for a token before its gate opens
	// NeedsCommit: the gate of the instance that comes in opens once a client has said commit.
	NeedsCommit bool          `json:"needs_commit,omitempty"`
	Committed   bool          `json:"committed,omitempty"`  // a client has said so
	UndoAsked   bool          `json:"undo_asked,omitempty"` // by a client
	Failure     *SavedFailure `json:"failure,omitempty"`    // why the swap is undone or was refused

	Done   bool                    `json:"done"`             // the swap is over
	Key    *SavedKey               `json:"key,omitempty"`    // the idempotency key; nil: none
	Result *launcherapi.SwapResult `json:"result,omitempty"` // set if the swap is over and has a key
}

// SavedKey is the idempotency key of a swap. It recognizes a repetition of the request,
// but the request cannot be read from it.
type SavedKey struct {
	Key  string `json:"key"`
	Salt []byte `json:"salt"`
	Hash []byte `json:"hash"` // of salt and request
}

// SavedFailure says why a swap failed or was refused.
type SavedFailure struct {
	Phase        string           `json:"phase,omitempty"`
	Code         string           `json:"code,omitempty"`
	Detail       string           `json:"detail"`
	Undo         string           `json:"undo,omitempty"` // what could not be undone
	InstanceID   string           `json:"instance_id,omitempty"`
	ExitCode     *int             `json:"exit_code,omitempty"`
	Cause        string           `json:"cause,omitempty"`
	LastLogLines []string         `json:"last_log_lines,omitempty"`
	Fit          *launcherapi.Fit `json:"fit,omitempty"`
}

// ReadSaved reads the record of a swap. A swap whose record is doubted is over: its end
// could not be written or, without a key, its record could not be removed.
func ReadSaved(f statedir.Found) (Saved, error) {
	var saved Saved
	err := json.Unmarshal(f.Record, &saved)
	if err == nil && saved.Plan.SwapID != f.Name {
		err = fmt.Errorf("it belongs to swap %q", saved.Plan.SwapID)
	}
	if f.Doubted && !saved.Done {
		saved.markEndLost()
	}
	if err == nil && saved.Done && (saved.Key == nil && !f.Doubted || saved.Result == nil) {
		err = errors.New("it says that the swap is over, but has no key or no result")
	}
	return saved, err
}

// markEndLost records an error for a swap whose end could not be written.
func (saved *Saved) markEndLost() {
	saved.Done = true
	saved.Result = &launcherapi.SwapResult{
		SwapID: saved.Plan.SwapID, Outcome: launcherapi.OutcomeInterrupted, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{},
	}
	saved.Failure = &SavedFailure{
		Phase: saved.Phase, Code: launcherapi.CodeStorage,
		Detail: fmt.Sprintf("swap %s is over, but the launcher died before it recorded the outcome", saved.Plan.SwapID),
	}
}

// InOrder sorts swaps, oldest first.
func InOrder(all []Saved) {
	slices.SortFunc(all, func(a, b Saved) int {
		return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Plan.SwapID, b.Plan.SwapID))
	})
}

// UnderWay returns the ids of the swaps that are not over.
func UnderWay(all []Saved) []string {
	var ids []string
	for _, saved := range all {
		if !saved.Done {
			ids = append(ids, saved.Plan.SwapID)
		}
	}
	return ids
}

// save writes the record of the swap for the first time, after the records of the
// instances that the swap has claimed. From here on the swap is finished or undone,
// even if the launcher dies.
func (r *Run) save() error {
	err := r.updateRecord(func(*Saved) { r.recorded = true })
	r.written = err == nil
	if err != nil {
		r.c.mu.Lock()
		r.recorded = false
		r.c.mu.Unlock()
		r.c.forgetSwap(r.ID()) // it may be written yet, once the disk answers again
	}
	return err
}

// updateRecord changes the record of the swap and waits until it is written. Phases of
// several instances run side by side: their changes are written in this order.
func (r *Run) updateRecord(change func(*Saved)) error {
	r.c.mu.Lock()
	written := r.putRecord(change)
	r.c.mu.Unlock()
	return r.awaitRecord(written)
}

// putRecord changes the record and has it written. The lock of the coordinator is held.
func (r *Run) putRecord(change func(*Saved)) *statedir.Write {
	change(&r.saved)
	r.saved.Stamp = r.c.opts.Clock.Stamp(r.saved.Began, r.saved.Plan.Until)
	return r.c.records.Put(r.saved.Plan.SwapID, r.saved)
}

func (r *Run) awaitRecord(written *statedir.Write) error {
	if err := written.Wait(); err != nil {
		return launcher.Storagef("cannot record swap %s: %w", r.saved.Plan.SwapID, err)
	}
	return nil
}

// saveEnd records that the swap is over. If the swap has a key, it writes the result;
// otherwise it removes the record. It waits for that for a bounded time.
func (r *Run) saveEnd() {
	r.mu.Lock()
	result, err := r.result, r.err
	r.mu.Unlock()
	forgotten := ""
	r.c.mu.Lock()
	r.saved.Done = true
	if r.saved.Key != nil {
		r.saved.Result, r.saved.Failure = &result, savedFailure(asFailed(err))
		truncateResult(&r.saved)
		forgotten = r.c.rememberLocked(&rememberedKey{saved: r.saved})
		r.c.records.Keep(r.saved.Plan.SwapID, r.saved)
	}
	keyed := r.saved.Key != nil
	r.c.mu.Unlock()
	if !keyed && r.written {
		r.c.forgetSwap(r.ID())
	}
	r.c.forgetSwap(forgotten)
	_ = r.c.writes.Settle() // a failure is logged elsewhere
}

// forgetSwap removes the record of a swap in the background; without an id it does nothing.
func (c *Coordinator) forgetSwap(id string) {
	if id == "" {
		return
	}
	c.records.Remove(id) // a doubted record counts as that of a swap that is over
}

// noteWriteFailed logs that the end of a swap could not be recorded.
func (c *Coordinator) noteWriteFailed(id string, err error) {
	c.log.Error("cannot record how a swap ended", "swap", id, "error", err)
}

// phaseOf returns the phase of a swap whose record has that one.
func phaseOf(recorded string) string { return cmp.Or(recorded, launcherapi.PhaseAdmit) }
