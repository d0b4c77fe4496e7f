package schedules

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestScheduleHangsOnlyWhileTheProgramUsesTheProcessor(t *testing.T) {
	var used, asked atomic.Int64
	hung := make(chan struct{})
	ended := watch(0, func() time.Duration {
		asked.Add(1)
		return time.Duration(used.Load())
	}, func() { close(hung) })
	defer ended()
	require.Eventually(t, func() bool { return asked.Load() > 1000 }, patience.Wait(), time.Millisecond)
	select {
	case <-hung:
		require.Fail(t, "the program got no processor")
	default:
	}
	used.Add(int64(hangUses()))
	select {
	case <-hung:
	case <-time.After(patience.Wait()):
		require.Fail(t, "nobody says that the schedule hangs")
	}
}

func TestScheduleThatEndsDoesNotHang(t *testing.T) {
	ended := watch(24*time.Hour, usedTime, func() { assert.Fail(t, "it has ended") })
	ended()
	var used atomic.Int64
	waits := make(chan struct{}, 1)
	ended = watch(0, func() time.Duration {
		select {
		case waits <- struct{}{}:
		default:
		}
		return time.Duration(used.Load())
	}, func() { assert.Fail(t, "it has ended") })
	<-waits
	ended()
}
