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

// interpreter is the Python that loads the engine now, with its flags.
func (p *Pool) interpreter() ([]string, error) {
	return PythonOf(p.opts.Command, p.opts.Arguments, p.opts.Python)
}

// commandStamp tells whether command and interpreter are as they were, also
// where they are links.
func (p *Pool) commandStamp() string {
	python, err := p.interpreter()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q\n%s", python, stamp([]string{p.opts.Command, python[0]}))
}

// outdated says whether one that is ready has loaded what is not installed any more.
func (p *Pool) outdated(l *preloader) bool {
	return stamp(l.hello.Watch) != l.stamp || p.commandStamp() != l.command
}

// stamp tells whether files and folders are as they were.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, errors.Unwrap(err))
			continue
		}
		target, _ := filepath.EvalSymlinks(path) // it is there
		fmt.Fprintf(&b, "%s %s %d %d\n", path, target, info.Size(), info.ModTime().UnixNano())
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
			info, err := os.Stat(file)
			if err == nil && info.ModTime().After(when) && !info.ModTime().After(time.Now()) {
				return true // what is of the future was there before
			}
		}
	}
	return false
}
