package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// diskTime bounds what a disk that stalls adds to a call: for its lease, its log, its record
// and their undoing.
const diskTime = 4 * statedir.Patience

// diskTime is that time if the disk ever stalled.
func (w *world) diskTime() time.Duration {
	if !w.everWrong("disk stalls") {
		return 0
	}
	return diskTime
}

// recordTime bounds how long a swap whose turn has come waits for the disk before it is refused:
// it records its claims first.
func (w *world) recordTime() time.Duration {
	if !w.everWrong("disk stalls") {
		return 0
	}
	return statedir.Patience
}

// stallDisk has the disk not answer for a while, and at most until the end of the script. With
// logs the engines wait for it as well, to write their logs, unless a launcher has just asked
// them for their state.
func (w *world) stallDisk(limit time.Duration, logs bool) {
	w.m.remember("disk stalls")
	w.mu.Lock()
	until := time.Now().Add(min(limit, time.Until(w.end)))
	if until.After(w.stalled) {
		w.stalled = until
	}
	w.mu.Unlock()
	if logs && w.life != nil && !w.life.isDead() && time.Since(w.life.born) > recoveryTime {
		w.m.silence(until)
	}
}

// backlogTime bounds how long an engine writes to its log when its disk answers again, before
// it does what it was asked.
const backlogTime = 5 * time.Second

// silence has the engines wait for the disk of their logs until then.
func (m *machine) silence(until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.logsStalled
	if now := time.Now(); from.Before(now) {
		from = now
	}
	if until.After(from) {
		m.logsStalled, m.silentTime = until, m.silentTime+until.Sub(from)+backlogTime
	}
	for _, p := range m.living() {
		p.silence(until)
	}
}

// silence has an engine wait for the disk of its log until then. Nothing is wrong with it. The
// lock is held.
func (p *proc) silence(until time.Time) {
	until = until.Add(p.m.take("log of "+p.name, backlogTime))
	now := time.Now()
	if p.silent.Before(now) {
		p.silent, p.silentSince = now, now
	}
	if until.After(p.silent) {
		p.lost += until.Sub(p.silent)
		p.silent = until
	}
}

// slack is how much longer a call may take because of a disk that stalls: a verb waits for its
// engine too.
func (w *world) slack(r *request) time.Duration {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	switch {
	case !w.m.ever["disk stalls"]:
		return 0
	case r.what == "sleep" || r.what == "wake":
		return diskTime + w.m.silentTime
	}
	return diskTime
}

// untilEnginesAnswer is how long it takes until the engines have done what they were asked while
// they waited for the disk.
func (w *world) untilEnginesAnswer() time.Duration {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if left := time.Until(w.m.logsStalled) + backlogTime; left > 0 {
		return left + 5*time.Second
	}
	return 0
}

// checkQuiet has the gates notice that their engines answer nothing. Clients ask all the time,
// and are answered at once unless an engine waits for the disk.
func (l *life) checkQuiet() {
	l.mu.Lock()
	var quiet []string
	for g := range l.gates {
		times := int(g.QuietFor() / limits.Hang)
		if times > g.timesQuiet {
			quiet = append(quiet, g.id)
		}
		g.timesQuiet = times
	}
	l.mu.Unlock()
	slices.Sort(quiet)
	for _, id := range quiet {
		l.sup.CheckQuiet(id)
	}
}

func (w *world) untilDiskAnswers() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.stalled)
}

// awaitDisk waits until the disk answers. The error says that the launcher is dead.
func (l *life) awaitDisk() error {
	for {
		left := l.w.untilDiskAnswers()
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-l.died:
			return errDead
		}
	}
}

// checkLevelWritten checks that the record of an instance has the level that its engine is
// told to sleep at, unless the record is marked as stale.
func (w *world) checkLevelWritten(id string, level int) {
	written, err := w.levelWritten(id)
	if errors.Is(err, fs.ErrNotExist) {
		return // checkRest looks for records that are lost
	}
	if err != nil || written != level {
		w.m.wrong(actsAreRecorded, "%s is put to sleep at level %d, and its record says level %d (%v)", id, level, written, err)
	}
}

// levelWritten reads the level in the record of an instance. Two records later, the launcher
// writes over a file that was replaced, perhaps with another instance's record. A record
// that is read at that moment counts for nothing.
func (w *world) levelWritten(id string) (level int, err error) {
	for range 100 {
		text, err := os.ReadFile(w.recordOf(id, ".json"))
		if err != nil {
			return 0, err
		}
		var written struct {
			Record struct {
				Facts struct {
					ID string `json:"id"`
				} `json:"facts"`
				Level int `json:"level"`
			} `json:"record"`
		}
		if json.Unmarshal(text, &written) == nil && written.Record.Facts.ID == id {
			return written.Record.Level, nil
		}
	}
	return 0, fmt.Errorf("the record of %s cannot be read", id)
}

// checkInstanceWritten checks that there is a record of an instance whose process starts.
func (w *world) checkInstanceWritten(id string) {
	_, err := os.Stat(w.recordOf(id, ".json"))
	if _, stale := os.Stat(w.recordOf(id, ".doubted")); err != nil && stale != nil {
		w.m.wrong(actsAreRecorded, "a process of %s starts without a record: %v", id, err)
	}
}

func (w *world) recordOf(id, end string) string { return filepath.Join(w.dir, "instances", id+end) }
