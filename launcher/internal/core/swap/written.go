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
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file writes and reads the records of swaps.

// Saved is the record of a swap on disk: kept from before the swap first touches
// anything until the swap is over, and after that as long as its key is remembered.
// It holds no secret.
type Saved struct {
	Plan  ledger.Plan `json:"plan"`
	Began time.Time   `json:"began"`

	Phase   string        `json:"phase,omitempty"`   // the one under way
	Deleted []string      `json:"deleted,omitempty"` // ids of the instances that somebody has deleted while they left
	Evicted []string      `json:"evicted,omitempty"` // ids of the victims that have ended
	Cut     int           `json:"cut,omitempty"`     // answers that were cut off
	Canary  bool          `json:"canary,omitempty"`  // the instance that comes in is to give a token before its gate opens
	Failure *SavedFailure `json:"failure,omitempty"` // why the swap is undone, or was refused

	Done   bool                    `json:"done"`             // the swap is over
	Key    *SavedKey               `json:"key,omitempty"`    // that it came with
	Result *launcherapi.SwapResult `json:"result,omitempty"` // of a swap that is done and has a key
}

// SavedKey is the idempotency key of a swap. A repetition of the request can be
// recognized by it; the request cannot be read from it.
type SavedKey struct {
	Key  string `json:"key"`
	Salt []byte `json:"salt"`
	Hash []byte `json:"hash"` // of salt and request
}

// SavedFailure is why a swap failed or was refused.
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

// ReadSaved reads the record of a swap. A swap whose record is doubted is over: how
// it ended could not be written or, of one without a key, its record not removed.
func ReadSaved(f statedir.Found) (Saved, error) {
	var saved Saved
	err := json.Unmarshal(f.Record, &saved)
	if err == nil && saved.Plan.SwapID != f.Name {
		err = fmt.Errorf("it is that of swap %q", saved.Plan.SwapID)
	}
	if f.Doubted && !saved.Done {
		saved.loseEnd()
	}
	if err == nil && saved.Done && (saved.Key == nil && !f.Doubted || saved.Result == nil) {
		err = errors.New("it is over, and has no key or no result")
	}
	return saved, err
}

// loseEnd fills in an error for a swap whose end could not be written.
func (saved *Saved) loseEnd() {
	saved.Done = true
	saved.Result = &launcherapi.SwapResult{
		SwapID: saved.Plan.SwapID, Outcome: launcherapi.OutcomeInterrupted, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{},
	}
	saved.Failure = &SavedFailure{
		Phase: saved.Phase, Code: launcherapi.CodeStorage,
		Detail: fmt.Sprintf("swap %s is over, but how it ended could not be written down before the launcher died", saved.Plan.SwapID),
	}
}

// InOrder sorts swaps by their beginning.
func InOrder(all []Saved) {
	slices.SortFunc(all, func(a, b Saved) int {
		return cmp.Or(a.Began.Compare(b.Began), strings.Compare(a.Plan.SwapID, b.Plan.SwapID))
	})
}

// UnderWay lists the ids of the swaps that are not over.
func UnderWay(all []Saved) []string {
	var ids []string
	for _, saved := range all {
		if !saved.Done {
			ids = append(ids, saved.Plan.SwapID)
		}
	}
	return ids
}

// save writes the swap down, after the records of the instances that it has
// claimed: from here on the swap is finished or undone, whatever happens to the
// launcher.
func (r *Run) save() error {
	err := r.rewrite(func(*Saved) {})
	r.written = err == nil
	return err
}

// rewrite changes the record of the swap. One change is on the disk before the next
// is made: phases of several instances run side by side.
func (r *Run) rewrite(change func(*Saved)) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.c.mu.Lock()
	change(&r.saved)
	saved := r.saved
	r.c.mu.Unlock()
	if err := r.c.opts.Records.Put(saved.Plan.SwapID, saved); err != nil {
		return launcher.Storagef("cannot write swap %s down: %w", saved.Plan.SwapID, err)
	}
	return nil
}

// writeEnd writes down that the swap is over: with its result when the swap has a
// key, and else by removing its record.
func (r *Run) writeEnd() {
	r.mu.Lock()
	result, err := r.result, r.err
	r.mu.Unlock()
	forgotten := ""
	r.c.mu.Lock()
	r.saved.Done = true
	if r.saved.Key != nil {
		r.saved.Result, r.saved.Failure = &result, savedFailure(asFailed(err))
		bound(&r.saved)
		forgotten = r.c.remember(&kept{saved: r.saved})
	}
	saved := r.saved
	r.c.mu.Unlock()
	if saved.Key == nil {
		if r.written {
			r.c.forgetSwap(saved.Plan.SwapID)
		}
		return
	}
	if err := r.c.opts.Records.Put(saved.Plan.SwapID, saved); err != nil {
		r.c.log.Error("cannot write down how a swap ended", "swap", saved.Plan.SwapID, "error", errors.Join(err, r.c.opts.Records.Doubt(saved.Plan.SwapID)))
	}
	r.c.forgetSwap(forgotten)
}

// forgetSwap removes the record of a swap; "" is none.
func (c *Coordinator) forgetSwap(id string) {
	if id == "" {
		return
	}
	if err := c.opts.Records.Remove(id); err != nil { // a record that is doubted is that of a swap that is over
		c.log.Error("cannot forget a swap", "swap", id, "error", errors.Join(err, c.opts.Records.Doubt(id)))
	}
}

// phaseOf is the phase that a swap is in by its record.
func phaseOf(saved Saved) string {
	if saved.Phase == "" {
		return launcherapi.PhaseAdmit
	}
	return saved.Phase
}
