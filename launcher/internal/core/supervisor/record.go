package supervisor

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// SavedInstance is the record of an instance on disk. It holds no secret.
type SavedInstance struct {
	Facts    facts                   `json:"facts"`
	Engine   string                  `json:"engine"`
	State    launcher.State          `json:"state"`
	Root     process.ID              `json:"root"`
	Level    int                     `json:"level,omitempty"`
	Reason   string                  `json:"reason,omitempty"`
	Cause    string                  `json:"cause,omitempty"`
	ExitCode *int                    `json:"exit_code,omitempty"`
	LastLog  []string                `json:"last_log,omitempty"`
	Created  time.Time               `json:"created"`
	Since    time.Time               `json:"since"`
	LastUsed time.Time               `json:"last_used"`
	Awake    map[string]uint64       `json:"awake_bytes,omitempty"`
	Asleep   map[string]uint64       `json:"asleep_bytes,omitempty"`
	Host     uint64                  `json:"host_bytes,omitempty"`
	AsleepAt int64                   `json:"asleep_log_bytes,omitempty"`
	Slept    bool                    `json:"slept,omitempty"` // the instance was asleep when its end began
	SwapID   string                  `json:"swap_id,omitempty"`
	HoldGate bool                    `json:"hold_gate,omitempty"`
	Deleting bool                    `json:"deleting,omitempty"`
	Timings  []launcherapi.PhaseTime `json:"timings,omitempty"`
	Revision uint64                  `json:"revision"`
	// Fingerprint of the engine; nil: none was taken, or an earlier release wrote the record.
	Fingerprint *fingerprint `json:"fingerprint,omitempty"`
	// Found: the instance had no record when a launcher found its processes. What is
	// known comes from these, and it is not known who created the instance.
	Found bool `json:"found,omitempty"`

	// Doubted: the record is stale, since a later one could not be written.
	Doubted bool `json:"-"`
}

func (i *instance) saved() *SavedInstance {
	v := &SavedInstance{
		Facts: i.facts, Engine: i.engine.Name(), State: i.state, Root: i.root, Level: i.level,
		Reason: i.reason, Cause: i.cause, LastLog: i.lastLog, Created: i.created, Since: i.since, LastUsed: i.lastUsed(),
		Awake: i.awakeBytes, Asleep: i.residue, Host: i.hostBytes, AsleepAt: i.asleepAt, Slept: i.asleepBeforeEnd,
		SwapID: i.swapID, HoldGate: i.gateHeldShut, Deleting: i.deleting, Timings: i.timings, Revision: i.revision, Found: i.foundUnrecorded,
		Fingerprint: i.fingerprint,
	}
	if i.exit != nil {
		v.ExitCode = i.exit.Code
	}
	return v
}

// write updates the record of an instance, and then the records of others that could not
// be written before. A failure, such as a full disk, is logged and counted; running
// engines go on. The lock is held.
func (s *Supervisor) write(i *instance) {
	id := i.facts.ID
	err := s.writeOne(id)
	if err == nil {
		err = s.writePending()
	}
	if err != nil {
		s.opts.Observer.WriteFailed()
		s.log.Error("cannot write to the state folder; the launcher continues, and asks its engines for their state when it needs it", "instance", id, "error", err)
	}
}

// writeOne writes the record of an id, or removes the record of a forgotten instance. If
// that fails, it marks the earlier record as stale, so that the next launcher asks the
// engine. The lock is held.
func (s *Supervisor) writeOne(id string) error {
	var err error
	if now, there := s.instances[id]; there {
		err = s.opts.Records.Put(id, now.saved())
	} else {
		err = s.opts.Records.Remove(id)
	}
	if err == nil {
		delete(s.unwritten, id)
		return nil
	}
	s.unwritten[id] = true
	if doubted := s.opts.Records.Doubt(id); doubted != nil {
		s.log.Error("the record of an instance is out of date", "instance", id, "error", doubted)
	}
	return err
}

// writePending writes the records that could not be written before. The lock is held.
func (s *Supervisor) writePending() error {
	for id := range s.unwritten {
		if err := s.writeOne(id); err != nil {
			return err
		}
	}
	return nil
}

// WritePending writes the records that could not be written before. It returns the first
// error.
func (s *Supervisor) WritePending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writePending()
}

// SavedState is everything that an earlier launcher has saved.
type SavedState struct {
	Instances []SavedInstance // oldest first
	UnderWay  []string        // ids of the swaps that were not over
	Revision  uint64          // the highest of any instance
}

// ReadSaved reads the record of an instance.
func ReadSaved(f statedir.Found) (SavedInstance, error) {
	var saved SavedInstance
	err := json.Unmarshal(f.Record, &saved)
	switch {
	case err != nil:
	case saved.Facts.ID != f.Name:
		err = fmt.Errorf("the record belongs to instance %q", saved.Facts.ID)
	case !idPattern.MatchString(saved.Facts.ID):
		err = fmt.Errorf("%q is no name of an instance", saved.Facts.ID)
	case !slices.Contains(launcher.States, saved.State):
		err = fmt.Errorf("unknown state %q", saved.State)
	}
	saved.Doubted = f.Doubted
	return saved, err
}

// Add adds an instance to the saved state.
func (s *SavedState) Add(saved SavedInstance) {
	s.Instances = append(s.Instances, saved)
	slices.SortStableFunc(s.Instances, func(a, b SavedInstance) int { return a.Created.Compare(b.Created) })
	s.Revision = max(s.Revision, saved.Revision)
}
