package portlease

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has the ports of a test, and who has each.
type machine struct {
	next int
	has  map[int]string // "launcher", "engine" or "stranger"
}

type port struct {
	m      *machine
	number int
}

func (p port) Port() int    { return p.number }
func (p port) Yield() error { p.m.has[p.number] = "engine"; return nil }
func (p port) Close() error { delete(p.m.has, p.number); return nil }

func (m *machine) Lease(number int) (Port, error) {
	if number == 0 {
		m.next++
		number = m.next
	}
	if m.has[number] != "" {
		return nil, fmt.Errorf("port %d is the %s's", number, m.has[number])
	}
	m.has[number] = "launcher"
	return port{m, number}, nil
}

func (m *machine) Used(number int) Port { m.has[number] = "engine"; return port{m, number} }

// rig is a book on a state folder, which a later book can be opened on.
type rig struct {
	*Book
	t       *testing.T
	ports   *machine
	records *statedir.Records
	fail    error  // of the next write
	during  func() // called during each write
}

func (r *rig) Put(name string, record any) error {
	if r.during != nil {
		r.during()
	}
	if r.fail != nil {
		return r.fail
	}
	return r.records.Put(name, record)
}
func (r *rig) Doubt(name string) error  { return r.records.Doubt(name) }
func (r *rig) Remove(name string) error { return r.records.Remove(name) }

// bootClock goes on as simulated time does.
var bootClock = statedir.Clock{Boot: "this boot", Since: func() time.Duration {
	return time.Since(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
}}

// kill ends the launcher: the kernel closes its sockets.
func (r *rig) kill() {
	r.t.Helper()
	require.NoError(r.t, r.opts.Writes.Settle())
	require.NoError(r.t, r.Close())
}

// restart opens another book. used has the leased ports of
// instances that live.
func (r *rig) restart(used map[string][]int) {
	r.t.Helper()
	found, err := r.records.Read()
	require.NoError(r.t, err)
	var saved []Saved
	for _, f := range found {
		s, err := ReadSaved(f)
		require.NoError(r.t, err)
		saved = append(saved, s)
	}
	r.Book = New(Options{Ports: r.ports, Records: r, Writes: &statedir.Queue{}, Clock: bootClock, Logger: slog.New(slog.DiscardHandler)}, saved, used)
}

func in(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		state, err := statedir.Open(t.TempDir())
		require.NoError(t, err)
		r := &rig{t: t, ports: &machine{next: 100, has: map[int]string{}}}
		r.records, err = state.Records("port-leases")
		require.NoError(t, err)
		r.restart(nil)
		test(t, r)
		require.NoError(t, r.Close())
		synctest.Wait()
		require.NoError(t, state.Close())
	})
}

func (r *rig) lease(id string, count int) launcherapi.PortLease {
	r.t.Helper()
	l, err := r.Lease(id, count)
	require.NoError(r.t, err)
	return l
}

// written returns the ids of the leases on the disk.
func (r *rig) written() []string {
	r.t.Helper()
	require.NoError(r.t, r.opts.Writes.Settle())
	found, err := r.records.Read()
	require.NoError(r.t, err)
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Name)
	}
	return ids
}

func TestLeaseOfTheSameIDHasTheSamePorts(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		first := r.lease("a", 2)
		assert.Equal(t, []int{101, 102}, first.Ports)
		assert.Equal(t, time.Now().Add(Lifetime).UTC(), first.ExpiresAt)
		assert.Equal(t, []int{103}, r.lease("b", 1).Ports)
		time.Sleep(10 * time.Second)
		again := r.lease("a", 2)
		assert.Equal(t, first.Ports, again.Ports)
		assert.Equal(t, first.ExpiresAt.Add(10*time.Second), again.ExpiresAt)
		_, err := r.Lease("a", 3)
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		assert.Equal(t, []string{"a", "b"}, r.written())
		given, err := r.GiveBack("a")
		require.NoError(t, err)
		assert.Equal(t, again, given)
		_, err = r.GiveBack("a")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Equal(t, map[int]string{103: "launcher"}, r.ports.has)
	})
}

func TestLeaseWithoutInstanceExpires(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.lease("a", 1)
		time.Sleep(Lifetime - time.Second)
		r.lease("a", 1)
		time.Sleep(Lifetime - time.Second)
		synctest.Wait()
		assert.Equal(t, []int{101}, r.Of("a"), "it was renewed")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Nil(t, r.Of("a"))
		assert.Empty(t, r.ports.has)
		assert.Empty(t, r.written())
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(r.Take("a", []int{101})))
	})
}

func TestTakenLeaseEndsWithItsInstance(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		ports := r.lease("a", 2).Ports
		require.NoError(t, r.Take("a", ports))
		time.Sleep(2 * Lifetime)
		assert.Equal(t, map[int]string{101: "launcher", 102: "launcher"}, r.ports.has, "the engine has not started yet")
		r.Yield("a")
		assert.Equal(t, map[int]string{101: "engine", 102: "engine"}, r.ports.has)
		l := r.lease("a", 2)
		assert.Equal(t, ports, l.Ports)
		assert.Zero(t, l.ExpiresAt)
		_, err := r.GiveBack("a")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		r.End("a")
		assert.Empty(t, r.ports.has)
		assert.Empty(t, r.written())
	})
}

func TestLeaseOfAnInstanceThatWasNotCreatedWaitsForTheRestOfItsTime(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		ports := r.lease("a", 1).Ports
		require.NoError(t, r.Take("a", ports))
		time.Sleep(Lifetime / 2)
		r.End("a")
		require.NoError(t, r.Take("a", ports))
		r.End("a")
		time.Sleep(Lifetime / 2)
		synctest.Wait()
		assert.Nil(t, r.Of("a"))
	})
}

func TestKilledLauncherLosesNoLease(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		waits, lives, expires, stolen := r.lease("waits", 2), r.lease("lives", 1), r.lease("expires", 1), r.lease("stolen", 1)
		require.NoError(t, r.Take("lives", lives.Ports))
		r.Yield("lives")
		time.Sleep(Lifetime / 2)
		r.lease("waits", 2)
		r.lease("stolen", 1)
		time.Sleep(Lifetime/2 - time.Second)
		r.kill()
		time.Sleep(2 * time.Second)
		r.ports.has[stolen.Ports[0]] = "stranger"
		r.restart(map[string][]int{"lives": lives.Ports})
		assert.Equal(t, waits.Ports, r.Of("waits"))
		assert.Equal(t, lives.Ports, r.Of("lives"))
		assert.Nil(t, r.Of("expires"), expires.ID)
		assert.Nil(t, r.Of("stolen"))
		assert.Equal(t, map[int]string{101: "launcher", 102: "launcher", 103: "engine", 105: "stranger"}, r.ports.has)
		assert.Equal(t, []string{"lives", "waits"}, r.written())
		time.Sleep(Lifetime / 2)
		synctest.Wait()
		assert.Nil(t, r.Of("waits"), "the restart gave it no more time")
		r.End("lives")
		assert.Empty(t, r.written())
		assert.Equal(t, "stranger", r.ports.has[105])
	})
}

func TestLeaseThatCannotBeRecordedIsNone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.fail = errors.New("the disk is full")
		_, err := r.Lease("a", 1)
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
		assert.Nil(t, r.Of("a"))
		assert.Empty(t, r.ports.has)
	})
}

func TestLeaseThatEndsWhileItIsRecordedIsNone(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.during = func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.drop(r.leases["a"])
		}
		_, err := r.Lease("a", 1)
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
		r.during = nil
		r.lease("a", 1)
	})
}

func TestOnlySoManyLeasesWait(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for n := range MaxWaiting {
			r.lease(fmt.Sprint("i", n), 1)
		}
		_, err := r.Lease("another", 1)
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
		renewed := r.lease("i0", 1)
		require.NoError(t, r.Take("i0", renewed.Ports))
		r.lease("another", 1)
	})
}

func TestRecordOfALeaseIsCheckedWhereItIsRead(t *testing.T) {
	for text, sound := range map[string]bool{
		`{"id":"a","ports":[1]}`:                 true,
		`{"id":"b","ports":[1]}`:                 false,
		`{"id":"a","ports":[]}`:                  false,
		`{"id":"a","ports":[0]}`:                 false,
		`{"id":"a","ports":[65536]}`:             false,
		`{"id":"a","ports":[1,2,3,4,5,6,7,8,9]}`: false,
		`[]`:                                     false,
	} {
		_, err := ReadSaved(statedir.Found{Name: "a", Record: []byte(text)})
		assert.Equal(t, sound, err == nil, "%s: %v", text, err)
	}
	doubted, err := ReadSaved(statedir.Found{Name: "a", Doubted: true, Record: []byte(`{"id":"a","ports":[1],"expires":"2100-01-01T00:00:00Z"}`)})
	require.NoError(t, err)
	assert.Zero(t, doubted.Expires)
	assert.True(t, slices.Equal([]int{1}, doubted.Ports))
}
