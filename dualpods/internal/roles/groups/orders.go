package groups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Launcher is what the controller orders a launcher to do for the ranks of servers.
type Launcher interface {
	LeasePorts(ctx context.Context, id string, count int) (launcherapi.PortLease, error)
	GoSwap(ctx context.Context, id string) (launcherapi.Swap, error)
	CommitSwap(ctx context.Context, id string) (launcherapi.Swap, error)
	UndoSwap(ctx context.Context, id string) (launcherapi.Swap, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
}

// orderLimit bounds an order to a launcher, which answers in milliseconds. orderPause is the time
// between two tries of an order that failed.
const (
	orderLimit = 2 * time.Second
	orderPause = time.Second
)

// isOrder reports whether an action is one about ranks.
func (a Action) isOrder() bool {
	return slices.Contains([]Action{Tell, Go, Commit, Stop, Remove, Undo}, a)
}

// give gives the order of a step, and returns when to look again if it was not obeyed.
func (c *Controller) give(ctx context.Context, s *Step) (again time.Duration) {
	err := c.order(ctx, s)
	switch {
	case err == nil:
		return 0
	case dualpods.IsStale(err):
		return conflictPause
	}
	s.waits(v1alpha1.GroupProgressing, s.Reason, err.Error())
	return orderPause
}

// order takes a step about ranks. The workers come before the entry: clients are led to the entry
// once the workers serve it. But the entry is the first that is told of a change in place: its
// annotation has the address for the others, also for a later process. Ranks are stopped though
// others cannot be, those of silent launchers last.
func (c *Controller) order(ctx context.Context, s *Step) error {
	var entry string
	if s.Do == Tell {
		var err error
		if entry, err = c.entryAddress(ctx, s); err != nil {
			return err
		}
	}
	ranks := slices.Clone(s.Ranks)
	if !s.tellsChange() {
		slices.Reverse(ranks)
	}
	slices.SortStableFunc(ranks, func(a, b *Member) int { return cmp.Compare(b.known(), a.known()) })
	var errs error
	for _, m := range ranks {
		err := c.orderRank(ctx, s, m, entry)
		if launcherclient.IsUnavailable(err) {
			err = fmt.Errorf("cannot %s rank %s: launcher %s does not answer", s.Do, m.name(), m.Bound.Launcher.Name)
		} else if err != nil {
			err = fmt.Errorf("cannot %s rank %s: %w", s.Do, m.name(), err)
		}
		if errs = errors.Join(errs, err); err != nil && s.Do != Stop && s.Do != Remove && (!s.Changes || s.Do == Tell) {
			break
		}
	}
	return errs
}

// known is 1 if the launcher of a rank answers, otherwise 0.
func (m *Member) known() int {
	if m.Bound.Known {
		return 1
	}
	return 0
}

func (c *Controller) orderRank(ctx context.Context, s *Step, m *Member, entry string) error {
	ctx, stop := context.WithTimeout(ctx, orderLimit)
	defer stop()
	api, err := c.launcherOf(m)
	if err != nil {
		return err
	}
	swap := m.Bound.Swap.ID
	if s.Changes {
		swap = m.nextSwap()
	}
	switch {
	case s.Do == Tell:
		return c.tellRank(ctx, s, m, entry)
	case s.Do == Go:
		_, err = api.GoSwap(ctx, swap)
	case s.Do == Commit:
		_, err = api.CommitSwap(ctx, swap)
	case s.Do == Stop && swap != "":
		if _, err = api.UndoSwap(ctx, swap); launcher.CodeOf(err) == launcherapi.CodeConflict { // it was committed
			_, err = api.Delete(ctx, m.Bound.Record.Instance)
		}
	case s.Do == Undo:
		if _, err = api.UndoSwap(ctx, swap); launcher.CodeOf(err) == launcherapi.CodeConflict { // the record will say so
			err = nil
		}
	default:
		_, err = api.Delete(ctx, s.recordOf(m).Instance)
	}
	if launcherclient.IsNotFound(err) { // it is over: an event tells of that
		return nil
	}
	return err
}

func (c *Controller) launcherOf(m *Member) (Launcher, error) {
	if api := c.opts.Launcher(string(m.Bound.Launcher.UID)); api != nil {
		return api, nil
	}
	return nil, errors.New("launcher " + m.Bound.Launcher.Name + " is not watched")
}

// recordOf returns the record that a step about a rank is about: in a change in place that of the
// instance that is to come.
func (s *Step) recordOf(m *Member) *podmeta.Binding {
	if next := m.Bound.Record.Next(); s.Changes && next != nil {
		return next
	}
	return m.Bound.Record
}

// instanceOf returns the instance of recordOf; nil: there is none, as far as is known.
func (s *Step) instanceOf(m *Member) *launcherapi.Instance {
	if s.Changes {
		return m.Bound.NextInstance
	}
	return m.Bound.Instance
}

// serverOf returns the start that a rank was told of for recordOf.
func (s *Step) serverOf(m *Member) podmeta.Server {
	if s.Changes {
		return m.NextServer
	}
	return m.Server
}

// tellsChange reports whether a step tells ranks of the start of a server that is to come in place.
func (s *Step) tellsChange() bool { return s.Do == Tell && s.Changes }

// entryAddress returns where the entry of a server meets the others. An instance that is there
// has the address that it was started with.
func (c *Controller) entryAddress(ctx context.Context, s *Step) (string, error) {
	told := s.serverOf(s.Of)
	switch i := s.instanceOf(s.Of); {
	case told.Attempt == s.recordOf(s.Of).SwapKey():
		return told.Entry, nil
	case i != nil && i.Rank != nil:
		return i.Rank.Entry, nil
	}
	ports, err := c.leasePorts(ctx, s, s.Of)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(s.Of.Bound.Launcher.Status.PodIP, strconv.Itoa(ports[len(ports)-1])), nil
}

// leasePorts leases as many ports as an instance can have: its arguments may name them. The entry
// meets the others at the last one.
func (c *Controller) leasePorts(ctx context.Context, s *Step, m *Member) ([]int, error) {
	ctx, stop := context.WithTimeout(ctx, orderLimit)
	defer stop()
	api, err := c.launcherOf(m)
	if err != nil {
		return nil, err
	}
	lease, err := api.LeasePorts(ctx, s.recordOf(m).Instance, launcherapi.MaxLeasedPorts)
	if err == nil && len(lease.Ports) == 0 {
		err = errors.New("the lease has no port")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lease ports for rank %s: %w", m.name(), err)
	}
	return lease.Ports, nil
}

// tellRank tells a rank of the start that its entry takes part in.
func (c *Controller) tellRank(ctx context.Context, s *Step, m *Member, entry string) error {
	if m != s.Of && s.instanceOf(m) == nil {
		if _, err := c.leasePorts(ctx, s, m); err != nil {
			return err
		}
	}
	server := podmeta.Server{Attempt: s.recordOf(m).SwapKey(), Group: s.recordOf(s.Of).SwapKey(), Entry: entry, Restarts: podmeta.ServerRestarts(m.Bound.Launcher)}
	after, key := m.Pod.Is.DeepCopy(), podmeta.AnnotationServer
	if s.Changes {
		key = podmeta.AnnotationNextServer
	}
	after.Annotations[key] = server.Encode() // a rank has annotations
	return client.IgnoreNotFound(c.opts.API.Patch(ctx, after, client.MergeFromWithOptions(m.Pod.Is, client.MergeFromWithOptimisticLock{})))
}
