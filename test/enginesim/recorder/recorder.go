// Package recorder keeps, beside the simulated GPUs, a record of which engines
// were awake on which GPU, written by the engines themselves.
//
// A worker says Awake before it takes any memory and Asleep after it gave all
// but its residue back. Each Awake looks, under a lock of that GPU, whether a
// living process is awake there already, and records an overlap if so. A
// process that died counts as not awake.
//
// The record is the file awake.log in the folder of the simulated GPUs: one
// JSON object a line, each appended by a single write.
package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what an Event tells.
type Kind string

const (
	Awake  Kind = "awake"
	Asleep Kind = "asleep"
	// Shared is an Awake beside others whose shares of the GPU's memory fit
	// together with this one's: allowed.
	Shared Kind = "shared"
	// Overlap is an Awake beside others with whom it does not fit.
	Overlap Kind = "overlap"
)

// Event is one line of the record.
type Event struct {
	Kind Kind   `json:"kind"`
	GPU  string `json:"gpu"` // UUID
	// At is CLOCK_MONOTONIC, the same for all processes of the machine.
	At  time.Duration `json:"at_ns"`
	PID int           `json:"pid"` // of the worker
	// Engine is the process ID of the worker's API server.
	Engine int    `json:"engine"`
	Model  string `json:"model"` // first served name
	// Share is the part of the GPU's memory that the engine takes, 0 to 1.
	Share float64 `json:"share"`
	// Others are the workers already awake, for Shared and Overlap.
	Others []Holder `json:"others,omitempty"`
}

// Holder is a worker that is awake on a GPU.
type Holder struct {
	PID    int     `json:"pid"`
	Engine int     `json:"engine"`
	Model  string  `json:"model"`
	Share  float64 `json:"share"`
	// Started is the process's start time in clock ticks since boot, which
	// with PID names it for good.
	Started uint64 `json:"started"`
}

// Events reads the whole record in dir, oldest first; none when there is no
// record yet.
func Events(dir string) ([]Event, error) {
	data, err := os.ReadFile(filepath.Join(dir, logName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the record: %w", err)
	}
	var events []Event
	in := json.NewDecoder(bytes.NewReader(data))
	for {
		var e Event
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot understand line %d of %s: %w", len(events)+1, logName, err)
		}
		events = append(events, e)
	}
}

// Overlaps lists the moments in dir at which an engine became awake on a GPU
// beside another that leaves no room for it. Sharing that fits is not among
// them: see Events and Shared.
func Overlaps(dir string) ([]Event, error) {
	events, err := Events(dir)
	if err != nil {
		return nil, err
	}
	var overlaps []Event
	for _, e := range events {
		if e.Kind == Overlap {
			overlaps = append(overlaps, e)
		}
	}
	return overlaps, nil
}

const logName = "awake.log"

func now() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("cannot read the clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
