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
	Facts     facts                   `json:"facts"`
	Engine    string                  `json:"engine"`
	State     launcher.State          `json:"state"`
	Root      process.ID              `json:"root"`
	Level     int                     `json:"level,omitempty"`
	Reason    string                  `json:"reason,omitempty"`
	Cause     string                  `json:"cause,omitempty"`
	ExitCode  *int                    `json:"exit_code,omitempty"`
	LastLog   []string                `json:"last_log,omitempty"`
	Created   time.Time               `json:"created"`
	Since     time.Time               `json:"since"`
	LastUsed  time.Time               `json:"last_used"`
	Awake     map[string]uint64       `json:"awake_bytes,omitempty"`
	Asleep    map[string]uint64       `json:"asleep_bytes,omitempty"`
	Confirmed bool                    `json:"confirmed,omitempty"` // as in instance
	Host      uint64                  `json:"host_bytes,omitempty"`
	AsleepAt  int64                   `json:"asleep_log_bytes,omitempty"`
	Slept     bool                    `json:"slept,omitempty"` // the instance was asleep when its end began
	SwapID    string                  `json:"swap_id,omitempty"`
	HoldGate  bool                    `json:"hold_gate,omitempty"`
	Deleting  bool                    `json:"deleting,omitempty"`
	Timings   []launcherapi.PhaseTime `json:"timings,omitempty"`
	Revision  uint64                  `json:"revision"`
	// Fingerprint of the engine; nil: none was taken, or an earlier release wrote the record.
	Fingerprint *fingerprint   `json:"fingerprint,omitempty"`
	Stamp       statedir.Stamp `json:"stamp,omitzero"` // of created, since and last used
	// Found: the instance had no record when a launcher found its processes. The
	// launcher knows of the instance what these show, and does not know who created it.
	Found bool `json:"found,omitempty"`
	// Unmeasured: part of the instance may be awake while it sleeps.
	Unmeasured bool `json:"unmeasured,omitempty"`

	// Doubted: the record is stale, since a later one could not be written.
	Doubted bool `json:"-"`
	// levelOnDisk is the level that the record names if the engine says another; 0: Level.
	levelOnDisk int
	// refuses: nothing listens at the address of the engine.
	refuses bool
}

// saved returns the record of an instance. The lock is held.
func (s *Supervisor) saved(i *instance) *SavedInstance {
	v := i.saved()
	v.Stamp = s.opts.Clock.Stamp(i.created, i.since, i.lastUsed())
	return v
}

func (i *instance) saved() *SavedInstance {
	v := &SavedInstance{
		Facts: i.facts, Engine: i.engine.Name(), State: i.state, Root: i.root, Level: i.level,
		Reason: i.reason, Cause: i.cause, LastLog: i.lastLog, Created: i.created, Since: i.since, LastUsed: i.lastUsed(),
		Awake: i.awakeBytes, Asleep: i.residue, Confirmed: i.confirmed, Host: i.hostBytes, AsleepAt: i.asleepAt, Slept: i.asleepBeforeEnd,
		SwapID: i.swapID, HoldGate: i.gateHeldShut, Deleting: i.deleting, Timings: i.timings, Revision: i.revision, Found: i.foundUnrecorded,
		Fingerprint: i.fingerprint, Unmeasured: i.unmeasured,
	}
	if i.exit != nil {
		v.ExitCode = i.exit.Code
	}
	return v
}

// write has the record of an instance written, or removed if the instance is forgotten. It
// does not wait for the disk. If the write fails, the earlier record is marked as stale, so
// that the next launcher asks the engine, and the write is tried again later. The lock is
// held.
func (s *Supervisor) write(i *instance) {
	id := i.facts.ID
	if now, there := s.instances[id]; there {
		i.record = s.records.Keep(id, s.saved(now))
	} else {
		i.record = s.records.Remove(id)
	}
}

// noteWriteFailed counts and logs a failure, such as that of a full disk; running engines
// go on.
func (s *Supervisor) noteWriteFailed(id string, err error) {
	s.opts.Observer.WriteFailed()
	s.log.Error("cannot write to the state folder; the launcher continues, and asks its engines for their state when it needs it", "instance", id, "error", err)
}

// awaitRecord waits until the latest record of an instance is written, before the launcher
// acts on the engine. An error says that the disk does not answer, and that the next
// launcher would believe an earlier record.
func (s *Supervisor) awaitRecord(i *instance) error {
	s.mu.Lock()
	record := i.record
	s.mu.Unlock()
	if record == nil {
		return nil
	}
	if err := record.WaitTold(); err != nil {
		return launcher.Storagef("cannot record instance %s: %w", i.facts.ID, err)
	}
	return nil
}

// awaitRecordIfWell is awaitRecord before a wake or a stop, which go on without a record
// where the disk does not answer: the next launcher asks the engine.
func (s *Supervisor) awaitRecordIfWell(i *instance) {
	if err := s.awaitRecord(i); err != nil {
		s.log.Warn("continuing without a record", "instance", i.facts.ID, "error", err)
	}
}

// settle waits until what a caller is told is written, for a bounded time. A failure is
// logged elsewhere.
func (s *Supervisor) settle() { _ = s.opts.Writes.Settle() }

// WritePending waits until all records are written, also those that could not be written
// before. It waits for a bounded time, and returns the first error.
func (s *Supervisor) WritePending() error { return s.records.Flush() }

// StalledSince returns since when the disk of the state folder does not answer; zero: it
// answers.
func (s *Supervisor) StalledSince() time.Time { return s.opts.Writes.StalledSince() }

// SavedState is everything that an earlier launcher has saved.
type SavedState struct {
	Instances []SavedInstance // oldest first
	UnderWay  []string        // ids of the swaps that were not over
	Revision  uint64          // the highest of any instance
}

// LeasedPorts returns the leased ports of the instances that have not ended, by id.
func (s *SavedState) LeasedPorts() map[string][]int {
	used := map[string][]int{}
	for _, saved := range s.Instances {
		if len(saved.Facts.Ports) > 0 && !saved.State.Ended() {
			used[saved.Facts.ID] = saved.Facts.Ports
		}
	}
	return used
}

// ReadSaved reads the record of an instance.
func ReadSaved(f statedir.Found) (SavedInstance, error) {
	var saved SavedInstance
	err := json.Unmarshal(f.Record, &saved)
	switch {
	case err != nil:
	case saved.Facts.ID != f.Name:
		err = fmt.Errorf("the record belongs to instance %q", saved.Facts.ID)
	case !launcherapi.IsID(saved.Facts.ID):
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
