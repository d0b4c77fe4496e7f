package binding

import (
	"context"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// canHold says that a program knows the call: one in three is of an earlier release.
func (p *simProgram) canHold() bool { return crc32.ChecksumIEEE([]byte(p.uid))%3 != 0 }

func (r *simRequesters) Hold(ctx context.Context, address string, hold requesterapi.Hold) (proxy requesterapi.Proxy, err error) {
	err = r.call(ctx, address, func(p *simProgram) error {
		pod := p.there()
		switch {
		case !p.proxy.CanHold:
			p.s.violated("requester %s is told to hold connections, which its program does not know", p.pod)
			return &spi.RefusedError{Call: "simulated", Problem: requesterapi.Problem{Status: 404, Detail: "Not Found"}}
		case pod != nil && len(pod.Spec.ReadinessGates) == 0:
			p.s.violated("requester %s is told to hold connections, and lists no gate", p.pod)
		case p.odd == oddBind:
			return refusal(p.odd)
		case p.proxy.State == requesterapi.StateDraining:
			return refusal(requesterapi.CodeDraining)
		case p.proxy.State == requesterapi.StateBound && p.proxy.Binding != hold.Binding:
			return refusal(requesterapi.CodeOtherBinding)
		case p.proxy.State == requesterapi.StateBound:
		case p.proxy.Terminating:
			return refusal(requesterapi.CodeTerminating)
		default:
			p.proxy.Holding, p.heldFor = hold.Binding, ""
			for _, r := range p.s.records() {
				if r.RequesterUID == p.uid && r.SwapKey() == hold.Binding {
					p.heldFor = r.Instance
				}
			}
			p.s.note("%s holds connections for %s", p.pod, p.heldFor)
		}
		proxy = p.answer()
		return nil
	})
	return proxy, err
}

// endsHold has connections that are held go to the binding that they are held for, or be
// reset.
func (p *simProgram) endsHold(config requesterapi.ProxyConfig) {
	held := p.proxy.Holding == config.Binding && p.heldFor != ""
	p.proxy.Holding = ""
	if !held {
		return
	}
	was := p.proxy.ProxyConfig
	p.proxy.ProxyConfig = config
	if _, i := p.target(); i != nil && i.InstanceID != p.heldFor {
		p.s.violated("connections of requester %s are held for %s, and reach %s", p.pod, p.heldFor, i.InstanceID)
	}
	p.proxy.ProxyConfig = was
}

// checkHold looks at a requester after a pass in which nothing failed: it holds connections
// while a swap for its record is under way, and for nobody else.
func (s *sim) checkHold(n *nodeWork, before simPass, p *simProgram, at int) {
	inVain := n.calls.trouble(troubleKey(decide.Hold, p.uid)).Count+n.calls.trouble(troubleKey(decide.EndHold, p.uid)).Count > 0
	settled := func(name string) bool { return before.known[name] && before.versions[name] == s.api.others[name] }
	unsettled := func(name string) bool { return simIsLauncher(s.api.pods[name]) && !settled(name) }
	if inVain || p.proxy.Terminating || podmeta.Ending(p.there()) || slices.ContainsFunc(sortedKeys(s.api.pods), unsettled) {
		return
	}
	if at < 0 {
		if p.proxy.Holding != "" {
			s.violated("requester %s holds connections, and has no record", p.pod)
		}
		return
	}
	r := s.records()[at]
	if p.proxy.Holding != "" && p.proxy.Holding != r.SwapKey() && !s.unreadable(r) {
		s.violated("requester %s holds connections for another binding than that of its record", p.pod)
	}
	v, now := before.views[string(r.on.UID)], s.inc.views[string(r.on.UID)]
	if s.edited.After(time.Now().Add(-longestLag-passLimit-justNow)) || now == nil || !v.Connected || !now.Connected || v.stream != now.stream || v.Revision != now.Revision {
		return
	}
	form, problems := s.asks(p.there())
	form, lacks := form.On(&r.on.Spec)
	if readable := len(problems)+len(lacks) == 0; readable && form.Hash() != r.SpecHash && p.proxy.Holding != "" && !s.unreadable(r) {
		s.violated("requester %s holds connections for an instance that it does not want any more", p.pod)
	}
	elsewhere := form.LauncherConfig != "" && form.LauncherConfig != r.on.Labels[podmeta.LabelLauncherConfig]
	wanted := len(problems)+len(lacks) == 0 && !elsewhere && form.Hash() == r.SpecHash && form.Port == r.ServingPort && decide.SameSet(r.GPUs, p.said()) && !podmeta.ServerEnded(r.on) && r.on.DeletionTimestamp == nil // else the requester is about to be deleted
	wanted = wanted && (!podmeta.IsSeat(p.there()) || r.ChangedBy == podmeta.ReadAssignment(p.there()).ID())
	if s.unreadable(r) || r.Ahead || !wanted || !p.proxy.CanHold || len(p.there().Spec.ReadinessGates) == 0 {
		return
	}
	swap := n.calls.attempt("swap/"+string(r.on.UID)+"/"+r.SwapKey(), now.Revision)
	waits := swap.Asked && !swap.Over && p.proxy.State == requesterapi.StateUnbound && !n.calls.underWay(unbindKey(p.uid), 0)
	if waits && p.proxy.Holding == "" {
		s.violated("requester %s refuses clients, and a swap for its record is under way", p.pod)
	}
}

// checkHoldAtRest looks at who holds connections when nothing has happened for long.
func (s *sim) checkHoldAtRest() {
	for _, name := range s.requesters() {
		p := s.programs[s.api.pods[name].UID]
		if p == nil || !p.up || p.hung || p.odd != "" || p.proxy.Holding == "" || s.living(p.uid) == nil {
			continue
		}
		if at := s.recordOf(p.uid); at < 0 || s.records()[at].SwapKey() != p.proxy.Holding {
			s.violated("at rest: requester %s holds connections for nobody", name)
		}
	}
}

// heldAndEdited has a requester that lists the gate be bound, and its specification be edited
// while its model starts.
var heldAndEdited = []simEvent{{at: 3 * time.Second, what: "create", arg: 384}, {at: 4 * time.Second, what: "edit config", arg: 384}}

func TestRequesterHoldsConnectionsForTheRecordThatItHas(t *testing.T) {
	decided := map[string]int{}
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, heldAndEdited, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d", seed)
		for row := range out.decided {
			decided[row]++
		}
	}
	assert.Positive(t, decided["not holding"])
	assert.Positive(t, decided["holds for nobody"])
}

func TestHoldForAnotherOrForNobodyIsFound(t *testing.T) {
	for _, row := range []string{"not holding", "holds for nobody"} {
		without := decide.Without(decide.Tables, row)
		assert.True(t, slices.ContainsFunc(seedsOfComposed, func(seed uint64) bool {
			return len(simulate(t, seed, heldAndEdited, without, false).wrong) > 0
		}), row)
	}
}
