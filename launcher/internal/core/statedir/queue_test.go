package statedir

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// disk is a Store that notes what it is told, and may stall or fail.
type disk struct {
	mu     sync.Mutex
	calls  []string
	stalls chan struct{} // calls wait until it is closed; nil: they do not
	fail   error         // of Put
	broken error         // of Doubt
}

func (d *disk) call(what string) {
	d.mu.Lock()
	stalls := d.stalls
	d.mu.Unlock()
	if stalls != nil {
		<-stalls
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, what)
}

func (d *disk) Put(name string, record any) error {
	d.call(name + " is " + record.(string))
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fail
}

func (d *disk) Doubt(name string) error  { d.call(name + " is doubted"); return d.broken }
func (d *disk) Remove(name string) error { d.call(name + " is removed"); return nil }

func (d *disk) set(change func()) { d.mu.Lock(); defer d.mu.Unlock(); change() }

func (d *disk) told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.calls...)
}

func queueTest(t *testing.T, test func(t *testing.T, d *disk, q *Queue, w *Writer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, q := &disk{}, &Queue{}
		test(t, d, q, q.Writer(d, func(string, error) {}))
		synctest.Wait() // no goroutine is left
	})
}

// settleFails has a write fail while Settle waits for it: Settle knows nothing of one that
// has failed before.
func settleFails(t *testing.T, q *Queue, d *disk, with error, write func()) {
	t.Helper()
	stalls, settled := make(chan struct{}), make(chan error)
	d.set(func() { d.stalls, d.fail = stalls, with })
	write()
	go func() { settled <- q.Settle() }()
	synctest.Wait()
	d.set(func() { d.stalls = nil })
	close(stalls)
	require.ErrorIs(t, <-settled, with)
}

func TestQueueWritesInOrderAndOnlyTheLatest(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		d.stalls = make(chan struct{})
		w.Put("a", "1")
		synctest.Wait() // it is being written
		early := w.Put("b", "1")
		w.Put("c", "1")
		w.Put("b", "2")
		w.Remove("a")
		w.Then(func() { d.call("then") })
		close(d.stalls)
		require.NoError(t, early.Wait(), "the later record of the name counts")
		require.NoError(t, q.Settle())
		assert.Equal(t, []string{"a is 1", "c is 1", "b is 2", "a is removed", "then"}, d.told())
	})
}

func TestStalledDiskHoldsUpNobodyButThoseThatWait(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		d.stalls = make(chan struct{})
		began := time.Now()
		first := w.Put("a", "1")
		assert.Zero(t, time.Since(began))
		assert.Zero(t, q.StalledSince())
		err := first.Wait()
		_, stalls := errors.AsType[*StallError](err)
		require.True(t, stalls, "%v", err)
		assert.Equal(t, Patience, time.Since(began))
		assert.True(t, q.StalledSince().Equal(began))
		second := w.Put("b", "1")
		require.Error(t, second.Wait())
		require.Error(t, second.WaitTold())
		require.Error(t, q.Settle())
		require.Error(t, w.Flush())
		assert.Equal(t, Patience, time.Since(began), "it is known by now")
		close(d.stalls)
		synctest.Wait()
		require.NoError(t, w.Flush())
		assert.Zero(t, q.StalledSince())
		assert.Equal(t, []string{"a is 1", "b is 1"}, d.told())
	})
}

func TestFailedRecordIsDoubtedAndTriedAgain(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		full := errors.New("the disk is full")
		d.fail = full
		kept := w.Keep("a", "1")
		require.ErrorIs(t, kept.Wait(), full)
		require.NoError(t, kept.WaitTold(), "its earlier record is known to be stale")
		require.ErrorIs(t, w.Put("b", "1").Wait(), full)
		d.set(func() { d.fail = nil })
		require.NoError(t, w.Put("c", "1").Wait())
		require.NoError(t, q.Settle())
		assert.Equal(t, []string{"a is 1", "a is doubted", "b is 1", "c is 1", "a is 1"}, d.told())
	})
}

func TestStaleRecordThatCannotBeMarkedIsAnError(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, _ *Queue, w *Writer) {
		d.fail, d.broken = errors.New("read-only"), errors.New("read-only")
		require.Error(t, w.Keep("a", "1").WaitTold())
	})
}

func TestRepeatWritesWhatIsOnTheDiskOrCouldNotBeWritten(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		w.Keep("a", "1")
		require.NoError(t, q.Settle())
		w.Repeat("a", "1")
		require.NoError(t, q.Settle())
		assert.Equal(t, []string{"a is 1", "a is 1"}, d.told())

		stalls := make(chan struct{})
		d.set(func() { d.stalls = stalls })
		w.Keep("a", "2")
		synctest.Wait() // it is being written
		w.Repeat("a", "2")
		w.Keep("b", "1")
		w.Repeat("b", "1")
		d.set(func() { d.stalls = nil })
		close(stalls)
		require.NoError(t, q.Settle())
		assert.Equal(t, []string{"a is 2", "b is 1"}, d.told()[2:])

		full := errors.New("full")
		settleFails(t, q, d, full, func() { w.Keep("a", "3") })
		tried := len(d.told())
		w.Repeat("a", "2")
		require.ErrorIs(t, q.Settle(), full)
		assert.Equal(t, "a is 3", d.told()[tried], "what could not be written is tried again")
		d.set(func() { d.fail = nil })
		w.Keep("b", "2")
		synctest.Wait()
		assert.Equal(t, "a is 3", d.told()[len(d.told())-1], "and when another write succeeds")
	})
}

func TestFailedRepeatDoesNotMarkTheRecordAsStale(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		w.Keep("a", "1")
		require.NoError(t, q.Settle())
		settleFails(t, q, d, errors.New("full"), func() { w.Repeat("a", "1") })
		assert.Equal(t, []string{"a is 1", "a is 1"}, d.told())
	})
}

func TestQueueRemembersWhenAStallEnded(t *testing.T) {
	queueTest(t, func(t *testing.T, d *disk, q *Queue, w *Writer) {
		assert.EqualValues(t, math.MaxInt64, q.WellFor())
		stalls := make(chan struct{})
		d.set(func() { d.stalls = stalls })
		began := time.Now()
		one := w.Keep("a", "1")
		time.Sleep(Patience - 1)
		assert.EqualValues(t, math.MaxInt64, q.WellFor(), "it may be slow")
		time.Sleep(time.Nanosecond)
		assert.Zero(t, q.WellFor())
		since, ended := q.UnderWay()
		assert.True(t, since.Equal(began))
		d.set(func() { d.stalls = nil })
		close(stalls)
		<-ended
		assert.Zero(t, q.StalledSince(), "whoever is told that the write has ended asks at once")
		_, ended = q.UnderWay()
		assert.Nil(t, ended)
		require.NoError(t, one.Wait())
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, q.WellFor())
	})
}
