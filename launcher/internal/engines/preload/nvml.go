package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// askLeft prints what NVML leaves in a process that asks it, as a preloader finds it out.
const askLeft = "import sys; sys.path.insert(0, sys.argv[1]); from hotseat_forkable import left_by_nvml; print(left_by_nvml())"

// LeftByNVML returns the names of files and threads that NVML leaves in a process that asks
// it; empty: none, or there is no NVIDIA driver. Where there are some, forked engines have
// another process ask NVML (spec/decisions/0148). A Python, given with its flags, finds that
// out.
func LeftByNVML(ctx context.Context, python []string) (left string, err error) {
	dir, err := os.MkdirTemp("", "hotseat-nvml-")
	if err != nil {
		return "", fmt.Errorf("cannot make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, programName)
	if err := writeProgram(program); err != nil {
		return "", fmt.Errorf("cannot write the preloader: %w", err)
	}
	out, err := outputOf(ctx, slices.Concat(python, []string{"-I", "-c", askLeft, program}), os.Environ())
	switch {
	case ctx.Err() != nil:
		return "", errors.New("NVML did not answer in time")
	case err != nil:
		return "", fmt.Errorf("cannot ask NVML by %s: %w", python[0], err)
	}
	return strings.TrimSpace(out), nil
}
