// Package hostmem holds a model's weights in host memory, for real: pages that
// are mapped, filled, and given back to the operating system.
package hostmem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Weights are the memory of one worker. The zero Weights hold nothing.
type Weights struct{ pages []byte }

// Load fills size bytes, from the start of file when one is named and else with
// a pattern. A file that is not there is made, sparse, of that size.
func (w *Weights) Load(size uint64, file string) error {
	if size == 0 || w.pages != nil {
		return nil
	}
	pages, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("cannot map %d bytes: %w", size, err)
	}
	if file == "" {
		pattern := bytes.Repeat([]byte("weights "), os.Getpagesize()/8)
		for at := 0; at < len(pages); {
			at += copy(pages[at:], pattern)
		}
	} else if err := read(file, pages); err != nil {
		return errors.Join(err, unix.Munmap(pages))
	}
	w.pages = pages
	return nil
}

func read(file string, pages []byte) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open the weights: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the weights: %w", err)
	}
	if info.Size() < int64(len(pages)) {
		if err := f.Truncate(int64(len(pages))); err != nil {
			return fmt.Errorf("cannot make the weights: %w", err)
		}
	}
	if _, err := io.ReadFull(f, pages); err != nil {
		return fmt.Errorf("cannot read the weights: %w", err)
	}
	return nil
}

// Drop gives the memory back.
func (w *Weights) Drop() error {
	if w.pages == nil {
		return nil
	}
	pages := w.pages
	w.pages = nil
	if err := unix.Munmap(pages); err != nil {
		return fmt.Errorf("cannot unmap the weights: %w", err)
	}
	return nil
}
