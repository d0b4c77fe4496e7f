package supervisor

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Record is one entry of the journal: what an instance is now, that it was
// forgotten, or what a swap intends. Exactly one of the pointers is set. The
// latest record of an instance or a swap says everything about it, so that
// reading a record twice does no harm.
type Record struct {
	Instance *SavedInstance `json:"instance,omitempty"`
	Forgot   string         `json:"forgot,omitempty"` // id of an instance
	Swap     *SavedSwap     `json:"swap,omitempty"`
	Revision uint64         `json:"revision"`
}

// SavedInstance is an instance in the journal. It holds no secret.
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
	Slept    bool                    `json:"slept,omitempty"` // it was asleep when its end began
	SwapID   string                  `json:"swap_id,omitempty"`
	HoldGate bool                    `json:"hold_gate,omitempty"`
	Deleting bool                    `json:"deleting,omitempty"`
	Timings  []launcherapi.PhaseTime `json:"timings,omitempty"`
}

// SavedSwap is a swap in the journal, from when it first touches anything.
type SavedSwap struct {
	ID    string   `json:"id"`
	GPUs  []string `json:"gpus"`
	In    string   `json:"in,omitempty"`
	New   bool     `json:"new,omitempty"`   // in is made by the swap
	Stays bool     `json:"stays,omitempty"` // in was awake before, or there is none: the swap does not move it
	Out   []string `json:"out"`
	Stop  bool     `json:"stop,omitempty"` // out ends rather than sleeps
	Level int      `json:"level"`

	Until   time.Time     `json:"until"`             // when its time is over
	Phase   string        `json:"phase,omitempty"`   // the one under way
	Failure *SavedFailure `json:"failure,omitempty"` // why it is undone, or came to nothing

	Done   bool                    `json:"done"`             // finished or undone: nothing to do any more
	Key    *SavedKey               `json:"key,omitempty"`    // that it came with
	Result *launcherapi.SwapResult `json:"result,omitempty"` // what it came to, once it is done and when it has a key
}

// SavedKey is the idempotency key of a swap. The request that came with it is
// known again, and cannot be read from it.
type SavedKey struct {
	Key  string `json:"key"`
	Salt []byte `json:"salt"`
	Hash []byte `json:"hash"` // of salt and request
}

// SavedFailure is why a swap failed or was refused.
type SavedFailure struct {
	Phase        string           `json:"phase,omitempty"`
	Code         string           `json:"code,omitempty"`
	Detail       string           `json:"detail"`
	Undo         string           `json:"undo,omitempty"` // what could not be undone
	InstanceID   string           `json:"instance_id,omitempty"`
	ExitCode     *int             `json:"exit_code,omitempty"`
	Cause        string           `json:"cause,omitempty"`
	LastLogLines []string         `json:"last_log_lines,omitempty"`
	Fit          *launcherapi.Fit `json:"fit,omitempty"`
}

func (i *instance) saved() *SavedInstance {
	v := &SavedInstance{
		Facts: i.facts, Engine: i.engine.Name(), State: i.state, Root: i.root, Level: i.level,
		Reason: i.reason, Cause: i.cause, LastLog: i.lastLog, Created: i.created, Since: i.since, LastUsed: i.lastUsed(),
		Awake: i.awakeBytes, Asleep: i.asleepBytes, Host: i.hostBytes, AsleepAt: i.asleepAt, Slept: i.slept,
		SwapID: i.swapID, HoldGate: i.holdGate, Deleting: i.deleting, Timings: i.timings,
	}
	if i.exit != nil {
		v.ExitCode = i.exit.Code
	}
	return v
}

// append writes a record about an instance.
func (s *Supervisor) append(saved *SavedInstance) error {
	return s.opts.Journal.Append(Record{Instance: saved, Revision: s.opts.Feed.Revision()})
}

// write puts the instance's present state into the journal, or that it is
// forgotten, and whatever could not be written before, the ends of swaps
// first: what happened after a swap must not be taken for a part of it. An engine that runs is
// not harmed by a journal that cannot be written: that is logged and counted.
// The lock is held.
func (s *Supervisor) write(i *instance) {
	s.unwritten[i.facts.ID] = true
	if err := s.writeRest(); err != nil {
		s.journalBehind(err)
	}
}

// writeRest writes what could not be written before. The lock is held.
func (s *Supervisor) writeRest() error {
	for id, swap := range s.unwrittenEnds {
		if err := s.appendSwap(swap); err != nil {
			return err
		}
		delete(s.unwrittenEnds, id)
	}
	for id := range s.unwritten {
		record := Record{Forgot: id, Revision: s.opts.Feed.Revision()}
		if now, ok := s.instances[id]; ok {
			record = Record{Instance: now.saved(), Revision: record.Revision}
		}
		if err := s.opts.Journal.Append(record); err != nil {
			return err
		}
		delete(s.unwritten, id)
		if now, ok := s.instances[id]; ok && now.unmarked {
			s.writeMark(now)
		}
	}
	return nil
}

// journalBehind takes the marks off the instances that the journal is behind on.
func (s *Supervisor) journalBehind(err error) {
	for id := range s.unwritten {
		if i, ok := s.instances[id]; ok && !i.unmarked {
			s.unmark(i)
		}
	}
	s.opts.Observer.JournalFailed()
	s.log.Error("cannot write the journal: the launcher goes on, and asks its engines what they do if it has to", "error", err)
}

// WriteSwap puts a swap into the journal. The end of one that cannot be written
// is written before the next record of an instance. One under way is written
// behind the marks of what it moves, by which it is known not to be over.
func (s *Supervisor) WriteSwap(saved SavedSwap) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !saved.Done {
		if err := s.writeRest(); err != nil {
			return launcher.Storagef("cannot write down what swap %s moves: %w", saved.ID, err)
		}
	}
	err := s.appendSwap(saved)
	if err != nil && saved.Done {
		s.unwrittenEnds[saved.ID] = saved
	}
	return err
}

func (s *Supervisor) appendSwap(saved SavedSwap) error {
	if err := s.opts.Journal.Append(Record{Swap: &saved, Revision: s.opts.Feed.Revision()}); err != nil {
		return launcher.Storagef("cannot write swap %s down: %w", saved.ID, err)
	}
	return nil
}

// Snapshot gives records that say everything that there is to say now.
// swaps are those that run, and those whose keys are remembered.
func (s *Supervisor) Snapshot(swaps []SavedSwap) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := s.opts.Feed.Revision()
	out := []any{Record{Revision: revision}}
	for _, i := range s.sorted() {
		out = append(out, Record{Instance: i.saved(), Revision: revision})
	}
	for _, swap := range swaps {
		out = append(out, Record{Swap: &swap, Revision: revision})
	}
	return out
}

// Memory is what the journal remembers of an earlier life of the launcher.
type Memory struct {
	Instances []SavedInstance // in the order of their making
	Swaps     []SavedSwap     // those that had not ended, in the order of their beginning
	Ended     []SavedSwap     // those that had, and have a key
	Revision  uint64
}

// Readable says what is wrong with a record of a journal.
func Readable(raw json.RawMessage) error { return json.Unmarshal(raw, new(Record)) }

// Replay reads the records of a journal.
func Replay(records []json.RawMessage) (Memory, error) {
	var m Memory
	for n, raw := range records {
		var r Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return m, fmt.Errorf("cannot read record %d of the journal: %w", n, err)
		}
		m.Revision = max(m.Revision, r.Revision)
		switch {
		case r.Instance != nil:
			m.putInstance(*r.Instance)
		case r.Forgot != "":
			m.dropInstance(r.Forgot)
		case r.Swap != nil:
			m.putSwap(*r.Swap)
		}
	}
	for _, swap := range m.Swaps {
		if swap.Key != nil && m.dismissed(swap) {
			m.Ended = append(m.Ended, swap.endLost())
		}
	}
	m.Swaps = slices.DeleteFunc(m.Swaps, m.dismissed)
	return m, nil
}

// endLost is the swap with what can be told of an end that could not be written.
func (swap SavedSwap) endLost() SavedSwap {
	swap.Done = true
	swap.Result = &launcherapi.SwapResult{
		SwapID: swap.ID, Outcome: launcherapi.OutcomeInterrupted, Out: []launcherapi.Instance{}, Phases: []launcherapi.PhaseTime{},
	}
	swap.Failure = &SavedFailure{
		Phase: swap.Phase, Code: launcherapi.CodeStorage,
		Detail: fmt.Sprintf("swap %s is over, but how it ended could not be written down before the launcher died", swap.ID),
	}
	return swap
}

// dismissed says whether a swap of which no end was read has ended all the same:
// the record of that is lost. While a swap is under way every instance that it
// moves carries its mark, from before its first record until after its last. One
// that does not was dismissed by it. An instance of which a record is lost may
// speak wrongly for the end of a swap that was under way: then nothing is undone
// and whoever moves settles by himself, which ends nobody. The opposite, to take
// up a swap that is over, would.
func (m *Memory) dismissed(swap SavedSwap) bool {
	return slices.ContainsFunc(m.Instances, func(i SavedInstance) bool {
		moved := i.Facts.ID == swap.In || slices.Contains(swap.Out, i.Facts.ID)
		return moved && i.SwapID != swap.ID
	})
}

func (m *Memory) putInstance(saved SavedInstance) {
	for n := range m.Instances {
		if m.Instances[n].Facts.ID == saved.Facts.ID {
			m.Instances[n] = saved
			return
		}
	}
	m.Instances = append(m.Instances, saved)
}

func (m *Memory) dropInstance(id string) {
	for n := range m.Instances {
		if m.Instances[n].Facts.ID == id {
			m.Instances = append(m.Instances[:n], m.Instances[n+1:]...)
			return
		}
	}
}

func (m *Memory) putSwap(saved SavedSwap) {
	m.Swaps = putSaved(m.Swaps, saved, !saved.Done)
	m.Ended = putSaved(m.Ended, saved, saved.Done && saved.Key != nil)
}

// putSaved gives the list with the swap in its place, or without the swap.
func putSaved(all []SavedSwap, saved SavedSwap, keep bool) []SavedSwap {
	at := slices.IndexFunc(all, func(s SavedSwap) bool { return s.ID == saved.ID })
	switch {
	case keep && at >= 0:
		all[at] = saved
	case keep:
		all = append(all, saved)
	case at >= 0:
		all = slices.Delete(all, at, at+1)
	}
	return all
}
