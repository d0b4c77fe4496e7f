package preload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// This file notices changes of the engine's installation.

// interpreter is the Python that loads the engine now, with its flags.
func (p *Pool) interpreter() ([]string, error) {
	return PythonOf(p.opts.Command, p.opts.Arguments, p.opts.Python)
}

// commandStamp changes when the command or the interpreter does, also where these
// are links.
func (p *Pool) commandStamp() string {
	python, err := p.interpreter()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q\n%s", python, stamp([]string{p.opts.Command, python[0]}))
}

// outdated says whether the installation has changed since a preloader loaded it.
func (p *Pool) outdated(l *preloader) bool {
	return stamp(l.hello.Watch) != l.stamp || p.commandStamp() != l.command
}

// stamp changes when one of the files and folders does.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, errors.Unwrap(err))
			continue
		}
		target, _ := filepath.EvalSymlinks(path) // os.Stat has found it
		fmt.Fprintf(&b, "%s %s %d %d\n", path, target, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// changedSince says whether files were written after a time. Of a folder only the
// folders *.dist-info of installed packages count: the first import of a package
// writes into the package's own folder.
func changedSince(paths []string, when time.Time) bool {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return true // the file was there when it was loaded, and is gone
		}
		written := []string{path}
		if info.IsDir() {
			written, _ = filepath.Glob(filepath.Join(path, "*.dist-info")) // the pattern is sound
		}
		for _, file := range written {
			info, err := os.Stat(file)
			if err == nil && info.ModTime().After(when) && !info.ModTime().After(time.Now()) {
				return true // a file with a time of the future was there before
			}
		}
	}
	return false
}
