package logrelay

import (
	"context"
	"errors"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/provider"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Watched is a launcher whose failed swaps are told of. An instance whose start
// has failed is removed, and its log cannot be read any more; where it was not
// followed, the last lines of it are in the swap's answer.
func (r *Relay) Watched(l provider.Provider) provider.Provider {
	return &watched{l, r}
}

type watched struct {
	provider.Provider
	relay *Relay
}

func (w *watched) SwapOnce(ctx context.Context, key string, req launcherapi.SwapRequest, progress func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	result, err := w.Provider.SwapOnce(ctx, key, req, progress)
	if failed, ok := errors.AsType[*launcher.Error](err); ok && len(failed.LastLogLines) > 0 {
		w.relay.failed(ctx, words{"swap/" + key, failed.LastLogLines})
	}
	return result, err
}

func (r *Relay) failed(ctx context.Context, last words) {
	uid, _ := dualpods.RequesterIn(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.jobs[uid]; j != nil {
		j.words = &last
		r.enqueue(j)
	}
}
