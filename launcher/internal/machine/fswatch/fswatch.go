// Package fswatch waits for changes of files, as the kernel tells of them by inotify.
package fswatch

import (
	"context"
	"fmt"

	"github.com/fsnotify/fsnotify"
)

// Until watches a file or folder, and returns when done says true: done is called at
// the beginning and after each change. The error is that of ctx, or says why the path
// cannot be watched; then done was not called.
func Until(ctx context.Context, path string, done func() bool) error {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", path, err)
	}
	defer watch.Close()
	if err := watch.Add(path); err != nil {
		return fmt.Errorf("cannot watch %s: %w", path, err)
	}
	for !done() {
		select {
		case <-watch.Events:
		case <-watch.Errors: //nolint:errcheck // events were lost: done is called all the same
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
