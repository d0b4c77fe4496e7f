package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Options say whose record is kept, and of which GPU.
type Options struct {
	Dir    string // folder of the simulated GPUs
	GPU    string // UUID; there is a folder of that name in Dir
	Engine int    // process ID of the API server
	Model  string // first served name
	Share  float64
}

// Recorder writes the record of one worker on one GPU.
type Recorder struct {
	opts Options
	self Holder
}

// New makes the recorder of this process.
func New(opts Options) (*Recorder, error) {
	started, ok := startOf(os.Getpid())
	if !ok {
		return nil, errors.New("cannot read this process's start time")
	}
	return &Recorder{opts: opts, self: Holder{
		PID: os.Getpid(), Engine: opts.Engine, Model: opts.Model, Share: opts.Share, Started: started,
	}}, nil
}

// Awake records that this process becomes awake now, and runs take, which takes
// the memory, under the GPU's lock. When take fails, it is asleep again.
func (r *Recorder) Awake(take func() error) error {
	return r.locked(func(holders []Holder) ([]Holder, error) {
		holders = slices.DeleteFunc(holders, func(h Holder) bool { return h.PID == r.self.PID })
		if err := take(); err != nil {
			return holders, err
		}
		holders = slices.DeleteFunc(holders, dead) // whose memory was free for the taking
		kind := Awake
		if len(holders) > 0 {
			kind = Shared
			if total(holders)+r.self.Share > 1+1e-9 {
				kind = Overlap
			}
		}
		return append(holders, r.self), r.append(kind, holders)
	})
}

// Asleep records that this process is asleep, once its memory was given back.
func (r *Recorder) Asleep() error {
	return r.locked(func(holders []Holder) ([]Holder, error) {
		holders = slices.DeleteFunc(holders, func(h Holder) bool { return h.PID == r.self.PID })
		return holders, r.append(Asleep, nil)
	})
}

// append writes one line, by one write.
func (r *Recorder) append(kind Kind, others []Holder) error {
	at, err := now()
	if err != nil {
		return err
	}
	line, err := json.Marshal(Event{
		Kind: kind, GPU: r.opts.GPU, At: at, PID: r.self.PID,
		Engine: r.opts.Engine, Model: r.opts.Model, Share: r.opts.Share, Others: others,
	})
	if err != nil {
		return fmt.Errorf("cannot write the record: %w", err)
	}
	f, err := shared(filepath.Join(r.opts.Dir, logName), os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("cannot open the record: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write the record: %w", err)
	}
	return nil
}

// shared opens a file, or makes it, for engines of every user to write to: a GPU is
// for all of them.
func shared(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|how, 0o666)
	if err == nil {
		_ = f.Chmod(0o666) // whose file it is has done so
	}
	return f, err
}

// locked hands the living holders of the GPU to change, under its lock, and
// keeps what change returns, also when that fails.
func (r *Recorder) locked(change func([]Holder) ([]Holder, error)) (err error) {
	folder := filepath.Join(r.opts.Dir, r.opts.GPU) // a cleaner of temporary files may remove it while it is empty
	err = os.MkdirAll(folder, 0o755)
	if err != nil {
		return fmt.Errorf("cannot make the folder of GPU %s: %w", r.opts.GPU, err)
	}
	f, err := shared(filepath.Join(folder, ".awake"), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("cannot open the lock of GPU %s: %w", r.opts.GPU, err)
	}
	// Closing gives the lock back.
	defer func() { err = errors.Join(err, f.Close()) }()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("cannot lock GPU %s: %w", r.opts.GPU, err)
	}
	var holders []Holder
	data, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("cannot read who is awake: %w", err)
	}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &holders); err != nil {
			return fmt.Errorf("cannot understand who is awake: %w", err)
		}
	}
	holders, err = change(slices.DeleteFunc(holders, dead))
	return errors.Join(err, rewrite(f, holders))
}

func rewrite(f *os.File, holders []Holder) error {
	data, err := json.Marshal(holders)
	if err != nil {
		return fmt.Errorf("cannot write who is awake: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("cannot write who is awake: %w", err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return fmt.Errorf("cannot write who is awake: %w", err)
	}
	return nil
}

func total(holders []Holder) float64 {
	sum := 0.0
	for _, h := range holders {
		sum += h.Share
	}
	return sum
}
