package preload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// This file notices changes of the engine's installation. It reads the disk: callers do not
// hold the pool's lock.

// installation is what a preloader has loaded.
type installation struct {
	watch   []string // files and folders that change with it
	stamp   string   // of watch
	command string   // stamp of command and interpreter
}

// interpreter returns the Python that loads the engine at present, with its flags.
func (p *Pool) interpreter() ([]string, error) {
	return PythonOf(p.opts.Command, p.opts.Arguments, p.opts.Python)
}

// commandStamp returns a text that changes when the command or the interpreter does.
// If these are links, it changes with their targets too.
func (p *Pool) commandStamp() string {
	python, err := p.interpreter()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q\n%s", python, stamp([]string{p.opts.Command, python[0]}))
}

// isStale reports whether an installation has changed since a preloader loaded it.
func (p *Pool) isStale(loaded installation) bool {
	return stamp(loaded.watch) != loaded.stamp || p.commandStamp() != loaded.command
}

// stamp returns a text that changes when one of the files and folders does.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, errors.Unwrap(err))
			continue
		}
		target, _ := filepath.EvalSymlinks(path) // os.Stat has found the file just before
		fmt.Fprintf(&b, "%s %s %d %d\n", path, target, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// changedSince reports whether files were written after a time. In a folder it looks
// only at the folders *.dist-info of installed packages: the first import of a
// package writes into the package's own folder.
func changedSince(paths []string, when time.Time) bool {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return true // the preloader has loaded the file, and now it is gone
		}
		written := []string{path}
		if info.IsDir() {
			written, _ = filepath.Glob(filepath.Join(path, "*.dist-info")) // the pattern is sound
		}
		for _, file := range written {
			info, err := os.Stat(file)
			if err == nil && info.ModTime().After(when) && !info.ModTime().After(time.Now()) {
				return true // a time in the future says nothing about a change
			}
		}
	}
	return false
}
