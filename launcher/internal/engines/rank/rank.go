// Package rank knows what an engine is told that is one rank of a server over several
// launchers. It decides and reads, and has no side effects.
//
// Rank 0 is the entry, which serves HTTP. The others are workers: they have no port, meet the
// entry at its address, and say nothing about themselves. Facts about vLLM were looked up in,
// and seen with, vLLM 0.30.0.
package rank

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Rank is one rank of a server.
type Rank struct {
	Group       string
	Index, Size int
	Host        string // of the entry
	Port        int    // at which the entry meets the others
	Address     string // of this launcher, at which its ranks listen
	Interface   string // network interface that has the address
}

// Error is a mistake in a rank. Field is the field of the body.
type Error struct{ Field, Message string }

func (e *Error) Error() string { return e.Message }

func errorf(field, format string, args ...any) error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Bounds of a rank.
const (
	mostRanks = 64
	longest   = 253 // letters of a group's name, and of a name in DNS
)

// hostName matches names in DNS.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?$`)

// Read reads the rank of a create body. The error is an *Error.
func Read(r launcherapi.Rank) (Rank, error) {
	switch {
	case r.Group == "" || len(r.Group) > longest:
		return Rank{}, errorf("group", "rank.group must have 1 to %d letters, not %d", longest, len(r.Group))
	case r.Size < 2 || r.Size > mostRanks:
		return Rank{}, errorf("size", "rank.size must be 2 to %d, not %d; leave out rank for a server in one piece", mostRanks, r.Size)
	case r.Index < 0 || r.Index >= r.Size:
		return Rank{}, errorf("index", "rank.index must be 0 to %d for a server of %d ranks, not %d", r.Size-1, r.Size, r.Index)
	}
	host, number, err := net.SplitHostPort(r.Entry)
	port, wrong := strconv.ParseUint(number, 10, 16)
	if err != nil || wrong != nil || port == 0 {
		return Rank{}, errorf("entry", "rank.entry must be HOST:PORT, such as 10.0.0.7:40123, not %q", r.Entry)
	}
	ip := net.ParseIP(host)
	if ip == nil && (len(host) > longest || !hostName.MatchString(host)) || ip.IsUnspecified() {
		return Rank{}, errorf("entry", "rank.entry must begin with the address of a host or its name in DNS, not %q", host)
	}
	return Rank{Group: r.Group, Index: r.Index, Size: r.Size, Host: host, Port: int(port)}, nil
}

// IsWorker reports whether the rank serves no HTTP.
func (r Rank) IsWorker() bool { return r.Index > 0 }

// The flags that a rank adds to a command line, in the order of Arguments.
const (
	nodes    = "--nnodes"
	node     = "--node-rank"
	address  = "--master-addr"
	port     = "--master-port"
	executor = "--distributed-executor-backend"
)

// Executor is the executor of ranks. vLLM chooses it by itself for several nodes on CUDA alone.
const Executor = "mp"

// Arguments are what the rank adds to the command line of vLLM. A worker is also told
// --headless, in place of the address at which it would listen.
func (r Rank) Arguments() []string {
	return []string{
		nodes, strconv.Itoa(r.Size), node, strconv.Itoa(r.Index),
		address, r.Host, port, strconv.Itoa(r.Port), executor, Executor,
	}
}

// FromArguments reads what Arguments has written at the beginning of a command line. The group
// is not known then. ok is false if the command line is not that of a rank.
func FromArguments(args []string) (r Rank, rest []string, ok bool) {
	n := len(Rank{}.Arguments())
	if len(args) < n {
		return Rank{}, args, false
	}
	size, noSize := strconv.Atoi(args[1])
	index, noIndex := strconv.Atoi(args[3])
	number, noPort := strconv.Atoi(args[7])
	r = Rank{Index: index, Size: size, Host: args[5], Port: number}
	if noSize != nil || noIndex != nil || noPort != nil || !slices.Equal(r.Arguments(), args[:n]) {
		return Rank{}, args, false
	}
	return r, args[n:], true
}

// Late returns the variables that every rank has, and that its arguments may name as $(NAME).
func (r Rank) Late() map[string]string {
	return map[string]string{"GROUP_SIZE": strconv.Itoa(r.Size), "ENTRY_ADDRESS": r.Host, "WORKER_INDEX": strconv.Itoa(r.Index)}
}

// Variables are the variables (KEY=value) that the launcher decides. vLLM listens at
// VLLM_HOST_IP for the other ranks, and tells them that address (get_ip in
// vllm/utils/network_utils.py).
func (r Rank) Variables() []string {
	out := []string{"VLLM_HOST_IP=" + r.Address}
	for name, value := range r.Late() {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// Defaults are variables (KEY=value) that the user or the operator may set otherwise: the
// network interface that gloo and NCCL use. A machine can have a faster one for NCCL. NCCL takes
// a name for the beginning of a name, unless = stands before it.
func (r Rank) Defaults() []string {
	return []string{"GLOO_SOCKET_IFNAME=" + r.Interface, "NCCL_SOCKET_IFNAME==" + r.Interface}
}

// GPUs returns how many GPUs each rank needs of those that the server needs. The error is an
// *Error.
func (r Rank) GPUs(all int) (int, error) {
	if all%r.Size != 0 {
		return 0, errorf("size", "%d ranks cannot share %d GPUs evenly: make tensor-parallel × pipeline-parallel a multiple of rank.size", r.Size, all)
	}
	return all / r.Size, nil
}

// Entry returns HOST:PORT of the entry.
func (r Rank) Entry() string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }
