package preload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// This file is how a change of the engine's installation is seen.

// stamp tells whether files and folders are as they were.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, errors.Unwrap(err))
			continue
		}
		fmt.Fprintf(&b, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// changedSince says whether files were written after a time. Of folders those
// count that tell of installed packages: the first import of a package writes
// into the others.
func changedSince(paths []string, when time.Time) bool {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return true // it was there when it was loaded
		}
		written := []string{path}
		if info.IsDir() {
			written, _ = filepath.Glob(filepath.Join(path, "*.dist-info")) // the pattern is sound
		}
		for _, file := range written {
			if info, err := os.Stat(file); err == nil && info.ModTime().After(when) {
				return true
			}
		}
	}
	return false
}
