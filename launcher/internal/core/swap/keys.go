package swap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file remembers idempotency keys: which swap came with each key, and the
// swap's result. Neither a request nor a secret of one is kept.

// Bounds of what is kept for keys.
const (
	keptKeys  = 1000
	keptBytes = 8 << 10 // of an answer, as JSON; from a larger one the descriptions of instances are left out
)

// kept is an idempotency key and the swap that came with it.
type kept struct {
	saved Saved // as it is written down
	run   *Run  // nil once the swap is over
}

// digestOf is the digest of a request, by which a repetition is recognized.
func digestOf(req launcherapi.SwapRequest) ([sha256.Size]byte, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("cannot encode a swap request: %w", err)
	}
	return sha256.Sum256(body), nil
}

// newKey makes the record of a key, by which a repetition of its request is
// recognized.
func newKey(key string, digest [sha256.Size]byte) *SavedKey {
	salt := make([]byte, sha256.Size)
	_, _ = rand.Read(salt) // never fails
	return &SavedKey{Key: key, Salt: salt, Hash: hashOf(salt, digest)}
}

func hashOf(salt []byte, digest [sha256.Size]byte) []byte {
	h := hmac.New(sha256.New, salt)
	_, _ = h.Write(digest[:])
	return h.Sum(nil)
}

// earlier is recall for a caller without the lock.
func (c *Coordinator) earlier(key string, digest [sha256.Size]byte) (*Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recall(key, digest)
}

// recall gives the swap that came with the key before, or nil. A different request
// with the same key is refused. The lock is held.
func (c *Coordinator) recall(key string, digest [sha256.Size]byte) (*Run, error) {
	k, used := c.keys[key]
	if key == "" || !used {
		return nil, nil //nolint:nilnil // a new key
	}
	if !hmac.Equal(k.saved.Key.Hash, hashOf(k.saved.Key.Salt, digest)) {
		return nil, &launcher.Error{
			Code:   launcherapi.CodeKeyReused,
			Detail: "this Idempotency-Key came with another request before, that of swap " + k.saved.Plan.SwapID + ": use a new key for a new request",
		}
	}
	if k.run != nil {
		return k.run, nil
	}
	return c.over(k.saved), nil
}

// remember keeps a key, and forgets the oldest key beyond the bound whose swap is
// over. forgotten is the id of that swap, whose record is to be removed too; empty: no
// swap's is. The lock is held.
func (c *Coordinator) remember(k *kept) (forgotten string) {
	key := k.saved.Key.Key
	if _, known := c.keys[key]; !known {
		c.recent = append(c.recent, key)
	}
	c.keys[key] = k
	if len(c.recent) > keptKeys {
		isOver := func(key string) bool { return c.keys[key].run == nil }
		if oldest := slices.IndexFunc(c.recent, isOver); oldest >= 0 {
			forgotten = c.keys[c.recent[oldest]].saved.Plan.SwapID
			delete(c.keys, c.recent[oldest])
			c.recent = slices.Delete(c.recent, oldest, oldest+1)
		}
	}
	return forgotten
}

// keep is remember for a caller without the lock, and removes the record of the
// swap whose key is forgotten.
func (c *Coordinator) keep(k *kept) {
	c.mu.Lock()
	forgotten := c.remember(k)
	c.mu.Unlock()
	c.forgetSwap(forgotten)
}

// over makes the Run of a swap that had ended in an earlier life of the launcher.
func (c *Coordinator) over(saved Saved) *Run {
	r := c.newRun(saved.Plan.SwapID)
	r.result, r.over = *saved.Result, true
	if saved.Failure != nil {
		r.err = failedError(*saved.Failure, r.result)
	} else {
		r.tell(launcherapi.SwapProgress{Type: launcherapi.ProgressResult, Result: saved.Result})
	}
	close(r.ended)
	return r
}

// savedFailure is the part of a failure that is written down.
func savedFailure(failed *FailedError) *SavedFailure {
	if failed == nil {
		return nil
	}
	out := &SavedFailure{Phase: failed.Phase, Detail: failed.Err.Error()}
	if failed.Undo != nil {
		out.Undo = failed.Undo.Error()
	}
	if e, ok := asDomain(failed.Err); ok {
		out.Code, out.InstanceID, out.ExitCode, out.Cause = e.Code, e.InstanceID, e.ExitCode, e.FailureCause
		out.LastLogLines, out.Fit = e.LastLogLines, e.Fit
	}
	return out
}

// failedError is the error that was written down.
func failedError(f SavedFailure, result launcherapi.SwapResult) *FailedError {
	code := f.Code
	if code == "" {
		code = launcherapi.CodeInternal
	}
	out := &FailedError{Phase: f.Phase, Result: result, Err: &launcher.Error{
		Code: code, Detail: f.Detail, InstanceID: f.InstanceID, ExitCode: f.ExitCode,
		FailureCause: f.Cause, LastLogLines: f.LastLogLines, Fit: f.Fit,
	}}
	if f.Undo != "" {
		out.Undo = errorText(f.Undo)
	}
	return out
}

// errorText is the text of an error of an earlier life of the launcher.
type errorText string

func (e errorText) Error() string { return string(e) }

// bound cuts the result of a swap to keptBytes.
func bound(saved *Saved) {
	if size(saved) <= keptBytes {
		return
	}
	result := *saved.Result
	if result.In != nil {
		in := short(*result.In)
		result.In = &in
	}
	result.Out = slices.Clone(result.Out)
	for n := range result.Out {
		result.Out[n] = short(result.Out[n])
	}
	saved.Result = &result
	if saved.Failure != nil {
		less := *saved.Failure
		less.LastLogLines, less.Fit = nil, nil
		saved.Failure = &less
	}
}

func size(saved *Saved) int {
	data, err := json.Marshal(struct {
		Result  *launcherapi.SwapResult
		Failure *SavedFailure
	}{saved.Result, saved.Failure})
	if err != nil {
		return keptBytes + 1
	}
	return len(data)
}

// short leaves out of an instance the fields that came with a request.
func short(i launcherapi.Instance) launcherapi.Instance {
	i.Options, i.Args, i.EnvVars, i.Annotations, i.LastLogLines = nil, nil, nil, nil, nil
	return i
}
