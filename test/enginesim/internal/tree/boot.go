// Package tree makes the engine's processes below the API server: EngineCore,
// its Workers, and, when a fault asks for it, a worker that strays. Each is
// this same program, started again under vLLM's name for it, in the session
// and process group of its parent, and told what to do over a link.
package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/link"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/stamp"
)

// Version is the release of vLLM that this stands in for.
const Version = "0.30.0"

// Boot is what a process of the tree is told first.
type Boot struct {
	Model       string // first served name
	Path        string // the model as named on the command line
	Utilization float64
	TP, PP, DP  int
	Nodes, Node int    // machines that share TP × PP, and which of them this is; 0: one
	GPUDir      string // folder of simulated GPUs, "" for none
	Visible     string // CUDA_VISIBLE_DEVICES
	API         int    // process ID of the API server
	Replica     int    // of an EngineCore and its workers: the data-parallel rank
	Rank        int    // of a worker within its EngineCore
	Settings    simopts.Settings
}

// world is the number of workers below one EngineCore.
func (b Boot) world() int { return b.TP * b.PP / max(b.Nodes, 1) }

// coreName is the title that vLLM gives an EngineCore.
func (b Boot) coreName() string {
	if b.DP > 1 {
		return fmt.Sprintf("%s_DP%d", coreTitle, b.Replica)
	}
	return coreTitle
}

// workerName is the title that vLLM gives a worker: its place is named only
// along the axes that have more than one.
func (b Boot) workerName() string {
	name, rank := workerTitle, b.Node*b.world()+b.Rank
	if b.PP > 1 {
		name += fmt.Sprintf("_PP%d", rank/b.TP)
	}
	if b.TP > 1 {
		name += fmt.Sprintf("_TP%d", rank%b.TP)
	}
	return name
}

const (
	prefix      = "VLLM::"
	coreTitle   = prefix + "EngineCore"
	workerTitle = prefix + "Worker"
	strayTitle  = prefix + "Stray"
)

// What a parent may ask of its child.
const (
	opBoot   = "boot"
	OpSleep  = "sleep"
	OpWake   = "wake_up"
	OpReload = "reload_weights"
	OpReach  = "reach"
)

// Child runs this process as one of the tree below the API server when it was
// started as one, and then does not return.
func Child() {
	switch name := os.Args[0]; {
	case strings.HasPrefix(name, coreTitle):
		setName(name)
		runCore(name)
	case strings.HasPrefix(name, workerTitle):
		setName(name)
		runWorker(name)
	case name == strayTitle:
		setName(name)
		runStray()
	}
}

// setName makes name what ps shows as the command; the kernel keeps 15 bytes.
func setName(name string) {
	// A title is a courtesy.
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// child is a process of the tree as its parent sees it.
type child struct {
	link *link.Parent
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was reaped
}

// spawn starts this program under name; prepare may change how. The caller
// closes the child's link when it needs no more answers.
func spawn(name string, prepare func(*exec.Cmd)) (*child, error) {
	parent, end, err := link.Pair()
	if err != nil {
		return nil, err
	}
	// A child of the tree outlives any call.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{name}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{end}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, stamp.EnvFile+"=") })
	if prepare != nil {
		prepare(cmd)
	}
	err = cmd.Start()
	if closeErr := end.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		// The first error says more.
		_ = parent.Close()
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	c := &child{link: parent, cmd: cmd, done: make(chan struct{})}
	go func() {
		// How it ended is in ProcessState.
		_ = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// boot tells the child what to do, and waits until it is ready. The error is
// the child's own.
func (c *child) boot(b Boot) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("cannot write the boot call: %w", err)
	}
	return c.link.Call(link.Call{Op: opBoot, Boot: data})
}

// end asks the children to end, and after a while makes them.
func end(children []*child, grace time.Duration) {
	for _, c := range children {
		// It may have ended by itself.
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	for _, c := range children {
		select {
		case <-c.done:
		case <-late.C:
			kill(children)
			<-c.done
		}
	}
}

func kill(children []*child) {
	for _, c := range children {
		// It may have ended by itself.
		_ = c.cmd.Process.Kill()
	}
}
