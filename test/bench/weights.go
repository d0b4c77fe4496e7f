package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// weightsBytes is how large the file is that starts with weights read.
const weightsBytes = 2 << 30

// weighed is a start, or a bare read, of weights on the disk and in the page cache.
type weighed struct {
	name         string
	run          func(id string) (time.Duration, error)
	disk, cached times
}

// weights times starts of the stand-in, which reads its weights whole, beside a bare
// read of the file: from the disk, and at once again.
func (b *bench) weights() (all []*weighed, err error) {
	bytes := b.scaled(weightsBytes)
	if err := b.roomFor(bytes); err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, "weights.safetensors")
	if err := writeWeights(file, bytes); err != nil {
		return nil, fmt.Errorf("cannot make the weights: %w", err)
	}
	n, err := b.newNode("weights")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	all = []*weighed{
		{name: "create call → `awake`, with weights of " + gibOf(float64(bytes)), run: func(id string) (time.Duration, error) { return n.startWith(id, file, bytes) }},
		{name: "bare read of that file", run: func(string) (time.Duration, error) { return readWhole(file) }},
	}
	for round := range max(5, b.n(5)) {
		for _, w := range all {
			if err := forget(file); err != nil {
				return nil, err
			}
			if err := errors.Join(w.take(fmt.Sprintf("disk-%d", round), &w.disk), w.take(fmt.Sprintf("cached-%d", round), &w.cached)); err != nil {
				return nil, err
			}
			fmt.Fprintf(b.progress, "%s: from the disk %s s, from the page cache %s s\n", w.name, seconds(w.disk[round]), seconds(w.cached[round]))
		}
	}
	return all, nil
}

func (w *weighed) take(id string, to *times) error {
	took, err := w.run(id)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	*to = append(*to, took)
	return nil
}

// startWith starts an instance that reads a file, and ends it.
func (n *node) startWith(id, file string, bytes int64) (time.Duration, error) {
	began := now()
	if _, err := n.client.Create(n.b.ctx, id, spec(0, "--sim-weights-file="+file, fmt.Sprintf("--sim-weights-bytes=%d", bytes))); err != nil {
		return 0, err
	}
	awake, err := n.watcher.await(n.b.ctx, id, "awake")
	if err != nil {
		return 0, err
	}
	_, err = n.client.Delete(n.b.ctx, id)
	return awake.since(began), err
}

func writeWeights(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), bytes)
	return errors.Join(err, f.Close())
}

// readWhole reads a file as simply as it can be read.
func readWhole(path string) (took time.Duration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffer, began := make([]byte, 1<<20), now()
	for {
		n, err := unix.Read(int(f.Fd()), buffer)
		if n == 0 || err != nil {
			return now().since(began), err
		}
	}
}

// renderWeights makes the table of the starts with weights.
func renderWeights(all []*weighed) string {
	var b strings.Builder
	b.WriteString("| from weights in a file | samples | from the disk: median (fastest – slowest), s | from the page cache, s | times faster |\n")
	b.WriteString("|---|---:|---:|---:|---:|\n")
	for _, w := range all {
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %.1f |\n", w.name, len(w.disk), spread(w.disk), spread(w.cached), w.disk.P50().Seconds()/w.cached.P50().Seconds())
	}
	return b.String()
}
