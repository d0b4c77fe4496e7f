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

// This file remembers idempotency keys: which swap came with each key, and the swap's
// result. It keeps neither a request nor a secret of one.

// Bounds of what the coordinator remembers for keys.
const (
	maxKeys        = 1000
	maxResultBytes = 8 << 10 // of a result, as JSON; a larger one is kept without the descriptions of its instances
)

// rememberedKey is an idempotency key and the swap that came with it.
type rememberedKey struct {
	saved Saved // as it is written down
	run   *Run  // nil once the swap is over
}

// digestOf returns the digest of a request, which recognizes a repetition.
func digestOf(req launcherapi.SwapRequest) ([sha256.Size]byte, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("cannot encode a swap request: %w", err)
	}
	return sha256.Sum256(body), nil
}

// newKey returns the record of a key, which recognizes a repetition of its request.
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

// lookUpKey is lookUpKeyLocked for a caller that does not hold the lock.
func (c *Coordinator) lookUpKey(key string, digest [sha256.Size]byte) (*Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookUpKeyLocked(key, digest)
}

// lookUpKeyLocked returns the swap that came with the key before, or nil. It refuses a
// different request with the same key. The lock is held.
func (c *Coordinator) lookUpKeyLocked(key string, digest [sha256.Size]byte) (*Run, error) {
	k, used := c.keys[key]
	if key == "" || !used {
		return nil, nil //nolint:nilnil // a new key
	}
	if !hmac.Equal(k.saved.Key.Hash, hashOf(k.saved.Key.Salt, digest)) {
		return nil, &launcher.Error{
			Code:   launcherapi.CodeKeyReused,
			Detail: "this Idempotency-Key belongs to an earlier, different request, that of swap " + k.saved.Plan.SwapID + "; use a new key for a new request",
		}
	}
	if k.run != nil {
		return k.run, nil
	}
	return c.finishedRun(k.saved), nil
}

// rememberLocked remembers a key. If there are more than maxKeys, it forgets the oldest
// key whose swap is over. forgotten is the id of that swap, whose record the caller
// removes; empty: none. The lock is held.
func (c *Coordinator) rememberLocked(k *rememberedKey) (forgotten string) {
	key := k.saved.Key.Key
	if _, known := c.keys[key]; !known {
		c.recent = append(c.recent, key)
	}
	c.keys[key] = k
	if len(c.recent) > maxKeys {
		isOver := func(key string) bool { return c.keys[key].run == nil }
		if oldest := slices.IndexFunc(c.recent, isOver); oldest >= 0 {
			forgotten = c.keys[c.recent[oldest]].saved.Plan.SwapID
			delete(c.keys, c.recent[oldest])
			c.recent = slices.Delete(c.recent, oldest, oldest+1)
		}
	}
	return forgotten
}

// remember is rememberLocked for a caller that does not hold the lock. It also removes
// the record of the swap whose key it forgets.
func (c *Coordinator) remember(k *rememberedKey) {
	c.mu.Lock()
	forgotten := c.rememberLocked(k)
	c.mu.Unlock()
	c.forgetSwap(forgotten)
}

// finishedRun returns the Run of a swap that is over, by its record. The Run has only the last step.
func (c *Coordinator) finishedRun(saved Saved) *Run {
	r := c.newRun(saved.Plan.SwapID)
	r.view, r.result, r.answered, r.over = viewOf(saved), *saved.Result, true, true
	r.saved.NeedsCommit = saved.NeedsCommit
	if saved.Failure != nil {
		r.err = failedError(*saved.Failure, r.result)
	} else {
		r.appendProgress(launcherapi.SwapProgress{Type: launcherapi.ProgressResult, Result: saved.Result})
	}
	close(r.ended)
	return r
}

// savedFailure returns the part of a failure that goes into the record.
func savedFailure(failed *launcher.SwapError) *SavedFailure {
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

// failedError returns the error of a recorded failure.
func failedError(f SavedFailure, result launcherapi.SwapResult) *launcher.SwapError {
	code := f.Code
	if code == "" {
		code = launcherapi.CodeInternal
	}
	out := &launcher.SwapError{Phase: f.Phase, Result: result, Err: &launcher.Error{
		Code: code, Detail: f.Detail, InstanceID: f.InstanceID, ExitCode: f.ExitCode,
		FailureCause: f.Cause, LastLogLines: f.LastLogLines, Fit: f.Fit,
	}}
	if f.Undo != "" {
		out.Undo = errorText(f.Undo)
	}
	return out
}

// errorText is an error that was read from a record.
type errorText string

func (e errorText) Error() string { return string(e) }

// truncateResult reduces the result of a swap that is larger than maxResultBytes.
func truncateResult(saved *Saved) {
	if resultSize(saved) <= maxResultBytes {
		return
	}
	result := *saved.Result
	if result.In != nil {
		in := withoutRequestFields(*result.In)
		result.In = &in
	}
	result.Out = slices.Clone(result.Out)
	for n := range result.Out {
		result.Out[n] = withoutRequestFields(result.Out[n])
	}
	saved.Result = &result
	if saved.Failure != nil {
		less := *saved.Failure
		less.LastLogLines, less.Fit = nil, nil
		saved.Failure = &less
	}
}

func resultSize(saved *Saved) int {
	data, err := json.Marshal(struct {
		Result  *launcherapi.SwapResult
		Failure *SavedFailure
	}{saved.Result, saved.Failure})
	if err != nil {
		return maxResultBytes + 1
	}
	return len(data)
}

// withoutRequestFields returns the instance without the fields that a request may make
// large.
func withoutRequestFields(i launcherapi.Instance) launcherapi.Instance {
	i.Options, i.Args, i.EnvVars, i.Annotations, i.LastLogLines = nil, nil, nil, nil, nil
	return i
}
