package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Ready asks GET /health once. vLLM answers 200 also while it sleeps; its port
// refuses connections until it is ready.
func (v *VLLM) Ready(ctx context.Context, base string) error {
	_, err := v.call(ctx, http.MethodGet, base, "/health", nil, "")
	return err
}

// IsSleeping asks GET /is_sleeping.
func (v *VLLM) IsSleeping(ctx context.Context, base string) (bool, error) {
	answer, err := v.call(ctx, http.MethodGet, base, "/is_sleeping", nil, "")
	if err != nil {
		return false, err
	}
	var body struct {
		IsSleeping *bool `json:"is_sleeping"`
	}
	if err := json.Unmarshal(answer, &body); err != nil || body.IsSleeping == nil {
		return false, fmt.Errorf("GET /is_sleeping answered %q", excerpt(answer))
	}
	return *body.IsSleeping, nil
}

// Sleep posts /sleep, which vLLM answers when the engine sleeps. An engine that
// sleeps already stays at its level.
func (v *VLLM) Sleep(ctx context.Context, base string, level int, check bool) error {
	err := v.sleep(ctx, base, level)
	if err == nil && check {
		err = v.expect(ctx, base, true)
	}
	if err != nil {
		return fmt.Errorf("cannot put the engine to sleep at level %d: %w", level, err)
	}
	return nil
}

func (v *VLLM) sleep(ctx context.Context, base string, level int) error {
	if err := launcherapi.CheckSleepLevel(level); err != nil {
		return err
	}
	_, err := v.call(ctx, http.MethodPost, base, fmt.Sprintf("/sleep?level=%d", level), nil, "")
	return err
}

// Wake posts /wake_up. After level 2 the weights have to be loaded again before the
// cache gets its memory, and the cache's old content is void.
func (v *VLLM) Wake(ctx context.Context, base string, level int, check bool) error {
	err := v.wake(ctx, base, level)
	if err == nil && check {
		err = v.expect(ctx, base, false)
	}
	if err != nil {
		return fmt.Errorf("cannot wake the engine from level %d: %w", level, err)
	}
	return nil
}

func (v *VLLM) wake(ctx context.Context, base string, level int) error {
	if err := launcherapi.CheckSleepLevel(level); err != nil {
		return err
	}
	if level == 1 {
		_, err := v.call(ctx, http.MethodPost, base, "/wake_up", nil, "")
		return err
	}

	// Weights must not be loaded under an engine that is awake and serves.
	if sleeping, err := v.IsSleeping(ctx, base); err != nil || !sleeping {
		return err
	}
	for _, step := range []struct {
		path string
		body any
	}{
		{"/wake_up?tags=weights", nil},
		{"/collective_rpc", map[string]string{"method": "reload_weights"}},
		{"/wake_up?tags=kv_cache", nil},
	} {
		if _, err := v.call(ctx, http.MethodPost, base, step.path, step.body, ""); err != nil {
			return err
		}
	}
	return v.resetPrefixCache(ctx, base)
}

// Resleep wakes what a failed Wake from level 2 has left asleep, without loading weights,
// and then puts all of the engine to sleep. A wake from level 1 is one call: if it failed,
// vLLM has no call that frees the part that is awake.
func (v *VLLM) Resleep(ctx context.Context, base string, level int) error {
	sleeping, err := v.IsSleeping(ctx, base)
	if err != nil {
		return err
	}
	if sleeping && level == 2 {
		for _, tag := range []string{"weights", "kv_cache"} { // vLLM ignores a tag that is awake
			if _, err := v.call(ctx, http.MethodPost, base, "/wake_up?tags="+tag, nil, ""); err != nil {
				return fmt.Errorf("cannot wake the rest of the engine: %w", err)
			}
		}
	}
	return v.Sleep(ctx, base, level, true)
}

// resetPrefixCache posts /reset_prefix_cache, which says in its body whether
// it could; older releases have an empty one.
func (v *VLLM) resetPrefixCache(ctx context.Context, base string) error {
	answer, err := v.call(ctx, http.MethodPost, base, "/reset_prefix_cache", nil, "")
	if err != nil || len(answer) == 0 {
		return err
	}
	var body struct {
		Success *bool `json:"success"`
	}
	if err := json.Unmarshal(answer, &body); err != nil || body.Success != nil && !*body.Success {
		return fmt.Errorf("POST /reset_prefix_cache answered %q", excerpt(answer))
	}
	return nil
}

// expect asks whether the engine really sleeps, or is awake, after its answer to a
// sleep or a wake.
func (v *VLLM) expect(ctx context.Context, base string, sleeping bool) error {
	switch is, err := v.IsSleeping(ctx, base); {
	case err != nil:
		return err
	case is && !sleeping:
		return errors.New("the engine reports that it still sleeps")
	case !is && sleeping:
		return errors.New("the engine reports that it is still awake")
	}
	return nil
}
