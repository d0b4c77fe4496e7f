package schedules

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// hangUses is how much processor time the program uses beyond the limit before a schedule
// hangs: a second for each lane of Play.
func hangUses() time.Duration { return time.Duration(2*runtime.GOMAXPROCS(0)) * time.Second }

// Watch calls hung if a schedule that begins now does not end. It waits for limit, and then
// until the program has used processor time in which the schedule could have ended: on a
// busy machine the program may get none for a long time. The schedule has ended when the
// caller calls ended.
func Watch(limit time.Duration, hung func()) (ended func()) {
	return watch(limit, usedTime, hung)
}

// usedTime returns how much processor time the program has used.
func usedTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Nano())
}

func watch(limit time.Duration, used func() time.Duration, hung func()) (ended func()) {
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-over:
			return
		}
		for until := used() + hangUses(); used() < until; { // which uses processor time, if nothing else does
			select {
			case <-over:
				return
			default:
			}
		}
		hung()
	})
	return func() {
		close(over)
		watching.Wait()
	}
}
