package outlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/machine/regular"
)

// The age of a log is the time since its last write, by the wall clock. When that clock is
// set, Prune sets the times of all logs with it, and keeps their order:
//
//	the clock was set    the times of logs
//	forward              move forward as far, to now at most: no log is removed too early
//	back                 that are later than now become now: no log is kept for ever
//
// The clock of the boot, which nobody sets, tells how far the wall clock was set. How far
// the two are apart is kept in Options.ClockFile, since a clock may be set while no launcher
// runs. If it was set in the middle of a restart of the machine, only the second row can be
// followed.

// clockSetting is how far the wall clock is ahead of the clock of a boot.
type clockSetting struct {
	Boot  string        `json:"boot_id"`
	Ahead time.Duration `json:"ahead_ns"`
}

// clockSlack is a difference that no setting of a clock explains: both clocks are read one
// after the other.
const clockSlack = time.Second

// sinceBoot returns the id of the boot and the time since it.
func sinceBoot() (boot string, since time.Duration, err error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return "", 0, fmt.Errorf("cannot read the clock of the boot: %w", err)
	}
	boot, err = procfs.BootID()
	return boot, time.Duration(now.Nano()), err
}

// followClock sets the times of the logs, oldest first, if the clock was set. The caller
// holds the lock of pruning.
func (s *Store) followClock(files []logFile, now time.Time) error {
	boot, since, err := s.opts.SinceBoot()
	if err != nil {
		return err
	}
	setting := clockSetting{Boot: boot, Ahead: time.Duration(now.UnixNano()) - since}
	before := s.clock
	var forward time.Duration
	if step := setting.Ahead - before.Ahead; before.Boot == boot && step >= clockSlack {
		forward = step
	}
	var errs []error
	for n := range files {
		f := &files[n]
		latest := now.Add(-time.Duration(len(files)-1-n) * time.Microsecond)
		changed := f.changed.Add(forward)
		if changed.After(latest) {
			changed = latest
		}
		if changed.Sub(f.changed).Abs() < clockSlack {
			continue
		}
		f.changed = changed
		at := unix.NsecToTimespec(changed.UnixNano())
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, s.path(f.name), []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot set the time of the log %s, as the clock was set: %w", f.name, err))
		}
	}
	if !s.clockKept || before.Boot != boot || (setting.Ahead-before.Ahead).Abs() >= clockSlack {
		errs = append(errs, s.keepSetting(setting))
	}
	return errors.Join(errs...)
}

// logClock logs what keeps the Store from following the clock, until it succeeds again. It is
// no error of Prune: without room for the clock's file, Prune makes room.
func (s *Store) logClock(err error) {
	if err != nil && !s.clockFailed {
		s.opts.Logger.Warn("cannot follow the clock; if it is set, logs may be removed too early or too late", "error", err)
	}
	s.clockFailed = err != nil
}

// openClock reads the setting of the clock at the last Prune. If none of this boot is kept,
// openClock keeps the setting of now, so that Prune writes no file later unless the clock is
// set. If it cannot, Prune tries again.
func (s *Store) openClock() error {
	boot, since, err := s.opts.SinceBoot()
	if err != nil {
		return err
	}
	if s.clock = s.readSetting(); s.clock.Boot == boot {
		s.clockKept = true
		return nil
	}
	return s.keepSetting(clockSetting{Boot: boot, Ahead: time.Duration(s.opts.Now().UnixNano()) - since})
}

// readSetting returns the kept setting of the clock; zero: none is kept.
func (s *Store) readSetting() clockSetting {
	if s.opts.ClockFile == "" {
		return clockSetting{}
	}
	f, _, err := regular.Open(s.opts.ClockFile)
	if err != nil {
		return clockSetting{}
	}
	defer func() { _ = f.Close() }()
	var kept clockSetting
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(text, &kept) != nil {
		return clockSetting{}
	}
	return kept
}

func (s *Store) keepSetting(setting clockSetting) error {
	s.clock, s.clockKept = setting, true
	if s.opts.ClockFile == "" {
		return nil
	}
	text, err := json.Marshal(setting)
	if err == nil {
		err = os.WriteFile(s.opts.ClockFile+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.opts.ClockFile+".new", s.opts.ClockFile)
	}
	if err != nil {
		s.clockKept = false
		return fmt.Errorf("cannot keep the setting of the clock: %w", err)
	}
	return nil
}
