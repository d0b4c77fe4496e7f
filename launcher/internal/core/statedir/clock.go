package statedir

import (
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// Clock is the time since the machine was booted, which nobody sets. In one process, Go
// reckons durations without the wall clock; between two processes, records need this clock.
// The zero value is the kernel's.
type Clock struct {
	Boot  string               // id of the boot; empty: the kernel's
	Since func() time.Duration // since the boot; nil: by the kernel
}

func (c Clock) boot() string {
	if c.Boot != "" {
		return c.Boot
	}
	id, err := procfs.BootID()
	if err != nil {
		return "" // no boot has that id: times are reckoned by the wall clock
	}
	return id
}

func (c Clock) since() time.Duration {
	if c.Since != nil {
		return c.Since()
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // not on Linux
	}
	return time.Duration(now.Nano())
}

// Stamp has the times of a record by the clock of a boot, in an order that belongs to the
// record.
type Stamp struct {
	Boot string          `json:"boot_id"`
	At   []time.Duration `json:"at_ns"`
}

// Stamp returns the stamp of times of this process.
func (c Clock) Stamp(times ...time.Time) Stamp {
	stamp, now := Stamp{Boot: c.boot()}, c.since()
	for _, t := range times {
		stamp.At = append(stamp.At, now-time.Since(t))
	}
	return stamp
}

// clockSlack is a difference between the two clocks that is no jump: both were read one
// after the other.
const clockSlack = time.Second

// Restore turns the times of a record into times of this process, whose durations do not
// depend on the wall clock. If the wall clock was set since the record was written, the
// clock of the boot counts. Without a stamp of this boot, the wall clock has to do.
func (c Clock) Restore(stamp Stamp, times ...*time.Time) {
	now, since := time.Now(), c.since()
	known := stamp.Boot != "" && stamp.Boot == c.boot() && len(stamp.At) == len(times)
	for n, t := range times {
		if t.IsZero() {
			continue
		}
		at := now.Add(t.Sub(now))
		if known {
			byBoot := now.Add(stamp.At[n] - since)
			if at.Sub(byBoot).Abs() >= clockSlack {
				at = byBoot
			}
		}
		*t = at
	}
}

// RestorePast is Restore for times that have passed: none is later than now.
func (c Clock) RestorePast(stamp Stamp, times ...*time.Time) {
	c.Restore(stamp, times...)
	now := time.Now()
	for _, t := range times {
		if t.After(now) {
			*t = now
		}
	}
}
