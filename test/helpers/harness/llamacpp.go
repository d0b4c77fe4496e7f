package harness

import (
	"fmt"
	"os"
	"path/filepath"
)

// LlamaCpp is real llama-server as test/llama-cpp/setup.sh sets it up.
type LlamaCpp struct {
	Program        string
	ModelA, ModelB string
	Split          string // folder of ModelA in two parts
}

// FindLlamaCpp finds it in the cache folder.
func FindLlamaCpp() (LlamaCpp, error) {
	cache, err := cacheFolder()
	if err != nil {
		return LlamaCpp{}, err
	}
	dir := filepath.Join(cache, "llama-cpp")
	l := LlamaCpp{
		Program: filepath.Join(dir, "bin", "llama-server"),
		ModelA:  filepath.Join(dir, "models", "tiny-a.gguf"), ModelB: filepath.Join(dir, "models", "tiny-b.gguf"),
		Split: filepath.Join(dir, "models", "split"),
	}
	if _, err := os.Stat(l.Program); err != nil {
		return LlamaCpp{}, fmt.Errorf("llama-server is not set up, run `make llama-cpp` first: %w", err)
	}
	return l, nil
}
