package simulation

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

const gib = uint64(1) << 30

// machine is what outlives the launcher: processes, device memory, ports. It
// lives in simulated time.
type machine struct {
	seed uint64

	draws sync.Mutex        // guards drawn alone
	drawn map[string]uint64 // how often a name was drawn for

	mu         sync.Mutex
	procs      map[int]*proc
	nextPID    int
	strange    map[string]uint64    // device memory that strangers hold, by GPU
	late       time.Duration        // what device memory takes beyond its time to come back
	blind      bool                 // the driver lists no process
	silent     map[string]time.Time // until then the driver does not answer for a GPU
	ports      map[int]string       // who listens
	private    map[int]bool         // ports that are kept for engines
	nextPort   int
	starved    bool              // there are no descriptors left: nobody ends, adopts or starts a process
	loading    time.Duration     // what a start takes beyond its time
	odd        map[string]string // what is odd of an engine from its start on, by its model
	helpers    []*helper         // of all launchers, oldest first
	preloaders string            // how they are now: "" well, "fail" or "hang"
	strangers  []*stranger

	logsStalled time.Time     // until then the disk of the engines' logs does not answer
	silentTime  time.Duration // how long engines waited for that in all, at most

	ever   map[string]bool // what was ever wrong with the machine, by kind, or by kind and GPU
	broken []string        // what must never be, and was: the invariant's name, then what happened
}

func newMachine(seed uint64) *machine {
	return &machine{
		seed: seed, drawn: map[string]uint64{}, procs: map[int]*proc{}, nextPID: 5_000_000, // beyond pid_max: no real process has it
		strange: map[string]uint64{}, silent: map[string]time.Time{}, ports: map[int]string{}, private: map[int]bool{}, nextPort: 20_000,
		odd: map[string]string{}, ever: map[string]bool{},
	}
}

// draw gives a number below n. It depends on the seed, the name and how often
// there was a draw for that, and on nothing that runs side by side.
func (m *machine) draw(name string, n uint64) uint64 {
	name = plain(name)
	m.draws.Lock()
	defer m.draws.Unlock()
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, []uint64{m.seed, m.drawn[name]})
	_, _ = h.Write([]byte(name))
	m.drawn[name]++
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd // the last step of MurmurHash3: FNV's low bits are poor
	x ^= x >> 33
	return x % n
}

// plain is a text without the ids that a launcher has made, which are another in each
// run.
func plain(text string) string {
	return madeIDs.ReplaceAllString(text, "MADE")
}

var madeIDs = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// take lets the time of a call pass: up to most, with a fraction by which hardly
// any two calls end at one instant.
func (m *machine) take(name string, most time.Duration) time.Duration {
	return time.Duration(m.draw(name, uint64(most)))
}

// wrong notes what must never be, under the name of the invariant.
func (m *machine) wrong(invariant, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violated(invariant, format, args...)
}

// violated is wrong for a caller that holds the lock.
func (m *machine) violated(invariant, format string, args ...any) {
	m.broken = append(m.broken, invariant+": "+fmt.Sprintf(format, args...))
}

// remember notes what was ever wrong with the machine.
func (m *machine) remember(what string) { m.mu.Lock(); defer m.mu.Unlock(); m.ever[what] = true }

// proc is a process with an engine in it.
type proc struct {
	m     *machine
	pid   int
	name  string // of its instance
	mark  string // of the launcher that started it
	model string // that it serves: the name of the request that it was made for
	reads string // where its model is
	argv  []string
	env   []string
	port  int
	gpus  []string
	need  map[string]uint64 // device memory while it is awake
	done  chan struct{}
	exit  process.Exit
	asked bool // somebody asked for its end
	birth time.Time

	before *proc // of the same instance, that it was started again for; nil: none

	// what the engine in it does; the machine's lock guards it
	ready     bool
	level     int       // it sleeps at that; 0: it is awake
	since     time.Time // it is ready, at that level, and holds what it holds
	garbage   bool
	garbled   bool // its answers are wrong
	mute      bool // it answers no request
	answered  int  // probes
	opened    bool // its gate has once opened
	known     bool // its answers were right when its gate first opened, and the launcher had asked for two
	held      map[string]uint64
	stubborn  bool // it does not end when it is told to
	immortal  bool // it does not even end when it is killed
	liar      bool // it says yes to a sleep or a wake, and does not do it
	refusing  bool // it refuses to sleep and to wake
	crashNext bool // it dies of the next call
	inPart    bool // it sleeps, and its weights are awake
	crippled  bool // it reports that it is awake, and has lost some of its memory
	// what it cannot do: reload its weights, wake from level 1 or sleep on all of its GPUs
	cannotReload, wakesInPart, sleepsInPart bool
	wakesGarbled, wakesMute                 bool          // what it is when it wakes next
	hung                                    time.Time     // until then it does nothing that it is asked
	slow                                    time.Duration // what it takes beyond its time to do what it is asked
	silent, silentSince                     time.Time     // it waits for the disk of its log until then, and since then
	lost                                    time.Duration // the time of all such waits
	troubled                                bool          // something was ever wrong with it
	last                                    chan struct{} // closed when it has done what it was asked last
}

func (p *proc) id() process.ID {
	return process.ID{PID: p.pid, StartTime: uint64(p.pid), BootID: bootID}
}

// bootID is the same in all lives of the launcher.
var bootID = func() string {
	id, err := procfs.BootID()
	if err != nil {
		panic(err)
	}
	return id
}()

func (p *proc) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end ends a process. Its device memory comes back a little later. The lock is
// held.
func (p *proc) end(exit process.Exit) {
	if !p.alive() {
		return
	}
	exit.At = time.Now()
	p.exit, p.since = exit, exit.At
	close(p.done)
	go p.giveBack(p.m.take("memory of "+p.name, 300*time.Millisecond), nil)
}

// giveBack has what the process holds of device memory become what is left.
func (p *proc) giveBack(after time.Duration, left map[string]uint64) {
	p.m.mu.Lock()
	after += p.m.late
	p.m.mu.Unlock()
	time.Sleep(after)
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.alive() && p.level == 0 {
		return // it has woken since
	}
	p.held, p.since = left, time.Now()
}

func signalled(s syscall.Signal) process.Exit {
	code := -int(s)
	return process.Exit{Code: &code, Signal: s}
}

// living are the processes that live, oldest first. The lock is held.
func (m *machine) living() []*proc {
	var all []*proc
	for _, p := range m.procs {
		if p.alive() {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *proc) int { return a.pid - b.pid })
	return all
}

// at is the process whose engine listens at a port. The lock is held.
func (m *machine) at(port int) *proc {
	for _, p := range m.living() {
		if p.port == port {
			return p
		}
	}
	return nil
}

// memory is what the driver says of a GPU.
func (m *machine) memory(uuid string) gpu.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := gpu.Memory{TotalBytes: 80 * gib, UsedBytes: m.strange[uuid], ProcessesKnown: !m.blind}
	var pids []int
	for pid, p := range m.procs {
		if p.held[uuid] > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range pids {
		held := m.procs[pid].held[uuid]
		out.UsedBytes += held
		if !m.blind {
			out.Processes = append(out.Processes, gpu.Process{PID: pid, Bytes: held})
		}
	}
	out.FreeBytes = out.TotalBytes - min(out.TotalBytes, out.UsedBytes)
	return out
}

// awaitDriver waits while the driver does not answer for a GPU.
func (m *machine) awaitDriver(uuid string) {
	m.mu.Lock()
	silence := time.Until(m.silent[uuid])
	m.mu.Unlock()
	time.Sleep(silence)
}

// isSilent says whether the driver does not answer for a GPU, or did not until a moment ago.
// The lock is held.
func (m *machine) isSilent(gpus []string) bool {
	return slices.ContainsFunc(gpus, func(uuid string) bool { return time.Since(m.silent[uuid]) < grace })
}

// holdsAsleep says whether the process sleeps, and its memory has not come back yet. The lock is
// held.
func (p *proc) holdsAsleep() bool {
	for uuid, need := range p.need {
		if p.level > 0 && p.held[uuid] >= need {
			return true
		}
	}
	return false
}

// reserve has an engine take a share of the memory that it needs awake: all (1) or half of
// it (2); one that has lost half of its memory takes half of that. false: there is not enough,
// and it dies. The lock is held.
func (p *proc) reserve(share uint64) bool {
	take := map[string]uint64{}
	for uuid, need := range p.need {
		need /= share
		if p.crippled {
			need /= 2
		}
		take[uuid] = need
		used := p.m.strange[uuid]
		for _, other := range p.m.procs {
			if other != p {
				used += other.held[uuid]
			}
		}
		if used+need > 80*gib {
			return false
		}
	}
	p.held, p.since = take, time.Now()
	return true
}

var errNoProcess = fmt.Errorf("no such process: %w", os.ErrNotExist)

// The machine tells of its processes as /proc does.

func (m *machine) find(pid int) (*proc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.procs[pid]
	if !ok || !p.alive() {
		return nil, errNoProcess
	}
	return p, nil
}

func (m *machine) Read(pid int) (procfs.Stat, error) {
	p, err := m.find(pid)
	if err != nil {
		return procfs.Stat{}, err
	}
	return procfs.Stat{PID: pid, PPID: 1, Session: pid, StartTime: p.id().StartTime}, nil
}

func (m *machine) Session(pid int) (int, error) {
	_, err := m.find(pid)
	return pid, err
}

// Resident: an engine that sleeps at level 1 keeps its weights in main memory.
func (m *machine) Resident(pid int) procfs.Resident {
	p, err := m.find(pid)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || p.level != 1 {
		return procfs.Resident{}
	}
	return procfs.Resident{Anon: 10 * gib}
}

func (m *machine) Arguments(pid int) []string {
	p, err := m.find(pid)
	if err != nil {
		return nil
	}
	return p.argv
}

func (m *machine) Environ(pid int) ([]string, error) {
	p, err := m.find(pid)
	if err != nil {
		return nil, err
	}
	return p.env, nil
}

func (m *machine) IsOwn(int) (bool, error) { return true, nil }

func (m *machine) Output(int) (string, error) { return "", errNoProcess }
