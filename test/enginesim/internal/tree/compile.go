package tree

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// compile takes the time that compiling the model takes, unless an engine has done so
// before and has kept it in the same place. As with vLLM (_support_torch_compile, in
// vllm/compilation/decorators.py), who does not find it writes it, whoever else does.
func (w *worker) compile(b Boot) error {
	root := os.Getenv("VLLM_CACHE_ROOT")
	if b.Settings.CompileTime == 0 || root == "" {
		return nil
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %d", b.Path, b.world()))
	kept := filepath.Join(root, "torch_compile_cache", "torch_aot_compile", fmt.Sprintf("%x", hash), fmt.Sprintf("rank_%d_%d", b.Rank, b.Replica), "model")
	if _, err := os.Stat(kept); err == nil {
		w.log.Info("decorators.py:309", "Directly load AOT compilation from path %s", kept)
		return nil
	}
	time.Sleep(b.Settings.CompileTime)
	half := fmt.Sprintf("%s.%d.tmp", kept, os.Getpid())
	err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(half, hash[:], 0o644))
	if err == nil {
		err = os.Rename(half, kept)
	}
	if err != nil {
		return fmt.Errorf("cannot keep what was compiled: %w", err)
	}
	w.log.Info("decorators.py:719", "saved AOT compiled function to %s", kept)
	return nil
}
