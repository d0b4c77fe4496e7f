package decide

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Observation is everything that one decision rests on: one requester, and what
// it has to do with. What is to be is never remembered from an earlier pass: only
// calls that were made, what came of them, and what was told.
//
// The tables do not read it. [see] makes of it what each of them reads.
type Observation struct {
	Common
	// ModelCache is from where a new instance has its model where Form does not say.
	ModelCache string
	Keeper     *dualpods.ModelKeeper // whose copy that is to be; nil: no ClusterModelCache says so
	Copy       Copy                  // of the launcher; only with a Keeper that waits
	// AsksAhead: the kubelet is asked although the requester program does not run yet.
	AsksAhead bool
	BoundToo  string                 // another requester that is bound on one of the record's GPUs, there or not; empty: none is
	Rivals    []string               // other living requesters that are bound on one of its GPUs, or, while it is not bound, have one as far as is known
	Launcher  *Launcher              // that of the record; else the one that would serve it; nil: there is none
	Lacking   *dualpods.LauncherWait // why there is no launcher and none can be made now; nil: one can
	Record    *podmeta.Binding       // nil: not bound; it is on the Pod of Launcher, which is not nil then
	Unread    string                 // what is wrong with a record that may be the requester's, which has no other; empty: there is none
	Earlier   string                 // another requester, for which a swap is under way on one of the record's GPUs
	Holder    string                 // another requester that is bound to the instance that this one would have, or may be
	Instance  *launcherapi.Instance
	Failures  *podmeta.Failures // of the instance, as its launcher Pod has them; nil: none
	Attempt   Attempt           // the swap of the record's attempt
	// NextInstance and NextAttempt are those of the record's change; of one without a change they
	// are nil and zero.
	NextInstance *launcherapi.Instance
	NextAttempt  Attempt
	Slices       Slices              // only of a requester that is to be unbound
	Told         Telling             // what the requester was told last
	Repeats      map[Action]Repeated // how often the writes were made that show the requester
	// Neighbours are what other launchers of the node have on the record's GPUs,
	// least recently used first.
	Neighbours Neighbours
	// Unheard is another launcher of the node that runs, and that this process has
	// not heard of since it began to ask it; nil: there is none.
	Unheard *Launcher
}

// Common is what the rows of all tables may read.
type Common struct {
	Now       time.Time
	Requester Requester
	Node      Node
	Form      form.Form            // what was asked for; only without Problems
	Problems  []podmeta.Problem    // of the requester's input
	SPI       *SPI                 // nil: the requester program does not answer, or was not asked
	Kubelet   *dualpods.Allocation // nil: nobody can ask the kubelet, and the requester's own word counts
	// Ahead: the requester program does not run yet, and the kubelet's word counts until it does.
	Ahead    bool
	Calls    Calls
	Troubles map[Action]Trouble // of calls to the requester program, and about the instance
}

// Requester is the Pod.
type Requester struct {
	dualpods.Requester
	UID             types.UID
	Namespace, Name string
	Instance        string        // id of the instance that it would have: of its form and its GPUs
	Exists          bool          // false: deleted by force; the record alone tells of it
	GraceEnds       time.Time     // when the kubelet kills what is left of it; zero: it is not being deleted
	Grace           time.Duration // that the kubelet gives it to end, at most
	Program         string        // the container that runs the requester program
	Running         bool          // the requester program runs
	Stuck           string        // why it does not, and will not by itself, as in "its Pod …"; empty: it may run soon
	Tolerates       bool          // that its node is made unschedulable, as the Pods of a DaemonSet do
	Finalizer       bool          // ours
	Gate            bool          // lists our readiness gate
	GateOpen        bool          // and that is true
	Started         time.Time     // the requester program
	Silent          time.Time     // since when it does not answer
	Refuses         bool          // it answers, and takes no orders of this controller
	AdminAddress    string
	GPUs            int       // how many it asks for
	Shown           bool      // its labels or its status tell others to use it
	ServesSince     time.Time // since when its status says that it serves; zero: it does not
	WaitsSince      time.Time // since when its status or its gate says that it waits, after it served; zero: neither says so
	Published       bool      // its labels and status are those of a bound, ready requester
	Told            string    // the message of its status
	Rank            podmeta.Rank
	OnExit          podmeta.OnExit
	Serving         string         // the ModelServing that owns its Pod; empty: none does
	Server          podmeta.Server // the start that a rank was told of for its record's attempt; zero: none
	NextServer      podmeta.Server // likewise for the change of its record
	SwapTo          podmeta.SwapTo // the change in place that it was told of; zero: none
	Seat            bool           // of a SeatPool; it may ask for no model
	Assigned        string         // the model that a seat was given: its [podmeta.Assignment.ID]; empty: none
	Behind          bool           // the cache does not have the InferenceServerConfig yet that a seat was given
	Input           podmeta.Input  // how it says which server it wants
	Placed          types.UID      // launcher whose sleeper is reserved for it; empty: none
	Created         time.Time      // read by no row: for an [Observer], as is PodReady
	PodReady        time.Time      // since when the Pod is ready; zero: it is not
	FoundUnready    time.Time      // since when the kubelet says that not all of the Pod's containers are ready; zero: it does not
}

// Node is the requester's.
type Node struct {
	Name          string // empty: not scheduled
	Gone          bool   // deleted, or being deleted
	Unschedulable bool
}

// SPI is what the requester program says.
type SPI struct {
	GPUs  []string // UUIDs
	Wrong string   // why it cannot tell its GPUs
	Proxy requesterapi.Proxy
}

// Launcher is a launcher Pod and what the launcher in it says.
type Launcher struct {
	UID      types.UID
	Name     string
	Config   string    // name of the LauncherConfig that it is of
	Created  time.Time // read by no row
	IP       string
	Deleting bool
	Dead     bool // its containers have ended for good
	// Ended: its own container has ended with all that was in it, and has not been
	// started again.
	Ended bool
	// Connected: the launcher's watch stream is up, so that what is known of its
	// instances is so.
	Connected bool
	Lost      time.Time              // since when it is not
	Why       string                 // it is not
	Waits     *dualpods.LauncherWait // what its program waits for; nil: it runs
	GPUs      []string               // UUIDs of its node
}

// Attempt is what became of a swap.
type Attempt struct {
	Asked   bool // it is under way, or over
	Over    bool
	Failure string           // why it came to nothing
	Code    string           // of the launcher's error: one of launcherapi.Code…; empty where it gave none
	Invalid bool             // the launcher cannot use the input, whatever runs there
	NoRoom  *launcherapi.Fit // it came to nothing since others than the launcher hold memory
	Evicted []string         // neighbours that were asked to go for it
	Earlier bool             // it is an earlier process's: what it came to may be long ago
	Phase   string           // of one in two halves that is under way, as far as is known
}

// Calls says which calls to the requester and to the launcher are under way:
// each is made once at a time.
type Calls struct {
	Unbind     bool // DELETE /v1/proxy/config, which waits for connections to end
	CallOff    bool // of the attempt's swap, once: it is under way, or over
	CallingOff bool // it is under way
	Sleep      bool
	Delete     bool // of the instance

	// NextCallOff and NextCallingOff are CallOff and CallingOff of the record's change.
	NextCallOff, NextCallingOff bool
}

// State returns the state of the instance; empty: there is none.
func (o *Observation) State() launcher.State { return stateOf(o.Instance) }

// stateOf returns the state of an instance; empty: there is none.
func stateOf(i *launcherapi.Instance) launcher.State {
	if i == nil {
		return ""
	}
	return launcher.State(i.State)
}

// endedOrGone reports whether an instance has ended or was deleted.
func endedOrGone(i *launcherapi.Instance) bool {
	return i == nil || slices.Contains([]launcher.State{launcher.Failed, launcher.Stopped, launcher.Stopping}, stateOf(i))
}

// IsLeaving reports whether the requester's server is not wanted any more.
func (c *Common) IsLeaving() bool {
	return !c.Requester.Exists || c.Requester.Leaves(c.Node.Gone) || c.programToldToEnd()
}

// isEnding reports whether the kubelet ends the requester: its Pod says so, or its program,
// which was told to end. The kubelet also ends Pods that nobody deletes.
func (c *Common) isEnding() bool { return c.Requester.Ending || c.programToldToEnd() }

// programToldToEnd reports whether the requester program has got SIGTERM.
func (c *Common) programToldToEnd() bool { return c.SPI != nil && c.SPI.Proxy.Terminating }

// ForwardsTraffic reports whether the requester program carries traffic, or still has
// connections of clients.
func (c *Common) ForwardsTraffic() bool {
	return c.SPI != nil && c.SPI.Proxy.State != requesterapi.StateUnbound
}

// IsReady reports whether the requester program answers probes that it is ready.
func (c *Common) IsReady() bool { return c.SPI != nil && c.SPI.Proxy.Ready }

// isEmptySeat reports whether the requester is a seat without a model.
func (c *Common) isEmptySeat() bool {
	return c.Requester.Seat && c.Requester.Input == podmeta.InputNone && len(c.Problems) == 0
}

// isPublished reports whether labels, status or gate of the requester tell others to use it.
func (c *Common) isPublished() bool { return c.Requester.Shown || c.Requester.GateOpen }
