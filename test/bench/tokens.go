package main

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// token is a way to start real vLLM with a large model, until its first token.
type token struct {
	name, method  string
	cold          bool // the weights are on the disk alone
	awake, tokens times
}

// firstTokens times starts of real vLLM with 2 GiB of weights, from the create call to
// the answer of one token: from the disk, from the page cache, and from a preloader and
// the page cache. They take turns.
func (b *bench) firstTokens(setup string) (all []*token, err error) {
	if err := b.roomFor(3 << 30); err != nil {
		return nil, err
	}
	maker := exec.CommandContext(b.ctx, filepath.Join(setup, "venv", "bin", "python"), "test/vllm-cpu/make_models.py", "--large", "two-gib", b.dir)
	if said, err := maker.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make the model: %w: %s", err, said)
	}
	n, err := b.newNode("tokens", "--start-method", "auto")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r := &realVLLM{b: b, n: n, model: filepath.Join(b.dir, "two-gib")}
	if err := r.awaitPreloader(); err != nil {
		return nil, err
	}
	all = []*token{
		{name: "cold: by exec, weights from the disk", method: launcherapi.StartExec, cold: true},
		{name: "by exec, weights in the page cache", method: launcherapi.StartExec},
		{name: "preloaded: by fork, weights in the page cache", method: launcherapi.StartFork},
	}
	for i := range b.n(3) {
		for k, f := range all {
			if err := r.firstToken(f, fmt.Sprintf("token-%d-%d", i, k)); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			fmt.Fprintf(b.progress, "%s: awake after %s s, first token after %s s\n", f.name, seconds(f.awake[i]), seconds(f.tokens[i]))
		}
	}
	return all, nil
}

// firstToken starts an instance, asks it for a token, and ends it.
func (r *realVLLM) firstToken(f *token, id string) error {
	if f.cold {
		if err := forget(filepath.Join(r.model, "model.safetensors")); err != nil {
			return err
		}
	}
	ctx, began := r.b.ctx, now()
	spec := launcherapi.InstanceSpec{Args: append(r.arguments(), "--max-num-batched-tokens", "256"), StartMethod: f.method}
	made, err := r.n.client.Create(ctx, id, spec)
	if err != nil {
		return err
	}
	if made.StartedBy != f.method {
		return fmt.Errorf("it was started by %s: %s", made.StartedBy, made.Reason)
	}
	awake, err := r.n.watcher.await(ctx, id, "awake")
	if err != nil {
		return err
	}
	w := &way{url: fmt.Sprintf("http://127.0.0.1:%d", made.Port), client: &http.Client{Timeout: time.Minute}}
	if err := w.post(ctx, `{"model": "tiny", "prompt": "The quick", "max_tokens": 1}`); err != nil {
		return err
	}
	f.awake, f.tokens = append(f.awake, awake.since(began)), append(f.tokens, now().since(began))
	w.client.CloseIdleConnections()
	_, err = r.n.client.Delete(ctx, id)
	return err
}

// renderTokens makes the table of the first tokens.
func renderTokens(all []*token) string {
	var b strings.Builder
	b.WriteString("| start, with 2.0 GiB of weights | samples | `awake`: median (fastest – slowest), s | first token, s | times faster than cold |\n")
	b.WriteString("|---|---:|---:|---:|---:|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %.1f |\n", f.name, len(f.tokens), spread(f.awake), spread(f.tokens), all[0].tokens.P50().Seconds()/f.tokens.P50().Seconds())
	}
	return b.String()
}
