package binding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// What may be wrong with the answers of a requester program.
const (
	oddBind    = "it refuses to bind"
	oddProxy   = "it says that it carries for another, whatever it is told"
	oddUnready = "it refuses to become unready"
	oddStays   = "it refuses to become unready, and to unbind"
	oddRefusal = "it cannot tell its GPUs, each time for another reason"
)

// stays says that nobody can unbind a requester.
func (s *sim) stays(uid types.UID) bool {
	p := s.programs[uid]
	return p != nil && p.up && p.odd == oddStays && p.proxy.State != requesterapi.StateUnbound
}

// silent says that the process has not heard a program when it asked it last.
func (inc *incarnation) silent(p *simProgram) bool {
	n := inc.kept(p.node)
	n.mu.Lock()
	defer n.mu.Unlock()
	_, quiet := n.quiet[p.uid]
	return quiet
}

// simRequesters is the way of a controller process to requester programs.
type simRequesters struct{ inc *incarnation }

func refusal(code string) error {
	return &spi.RefusedError{Call: "simulated", Problem: requesterapi.Problem{Status: 409, Code: code, Detail: code}}
}

func (r *simRequesters) at(address string) *simProgram {
	for _, p := range r.inc.s.programs {
		if p.address() == address && p.up {
			return p
		}
	}
	return nil
}

func (r *simRequesters) call(ctx context.Context, address string, do func(*simProgram) error) error {
	hung := false
	err := r.inc.call(ctx, "requester "+address, func() error {
		p := r.at(address)
		switch {
		case p == nil:
			return errors.New("connection refused")
		case p.hung:
			hung = true
			return nil
		}
		return do(p)
	})
	if hung {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (r *simRequesters) Accelerators(ctx context.Context, address string) (uuids []string, err error) {
	err = r.call(ctx, address, func(p *simProgram) error {
		if p.mute != "" {
			return refusal(p.mute)
		}
		if p.asked++; p.odd == oddRefusal {
			return refusal(fmt.Sprintf("no driver answers, for the time %d", p.asked))
		}
		uuids = slices.Clone(p.gpus)
		if p.lie != nil {
			uuids = slices.Clone(p.lie)
		}
		return nil
	})
	return uuids, err
}

func (r *simRequesters) Proxy(ctx context.Context, address string) (proxy requesterapi.Proxy, err error) {
	err = r.call(ctx, address, func(p *simProgram) error {
		proxy = p.told(p.answer())
		return nil
	})
	return proxy, err
}

// told is what the program says of its proxy.
func (p *simProgram) told(proxy requesterapi.Proxy) requesterapi.Proxy {
	if p.odd == oddProxy && proxy.State == requesterapi.StateBound {
		proxy.Binding = "another"
	}
	return proxy
}

func (r *simRequesters) Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (proxy requesterapi.Proxy, err error) {
	err = r.call(ctx, address, func(p *simProgram) error {
		switch {
		case p.odd == oddBind:
			return refusal(p.odd)
		case p.proxy.State == requesterapi.StateDraining:
			return refusal(requesterapi.CodeDraining)
		case p.proxy.State == requesterapi.StateBound && p.proxy.ProxyConfig != config:
			return refusal(requesterapi.CodeOtherBinding)
		case p.proxy.State == requesterapi.StateBound:
		case p.proxy.Terminating:
			return refusal(requesterapi.CodeTerminating)
		default:
			p.endsHold(config)
			p.proxy.ProxyConfig, p.proxy.State, p.proxy.Ready = config, requesterapi.StateBound, false
			p.s.note("%s is bound to %s", p.pod, config.Target())
		}
		proxy = p.told(p.proxy)
		return nil
	})
	return proxy, err
}

// meant refuses a call about another binding.
func (p *simProgram) meant(binding string) error {
	if p.proxy.State != requesterapi.StateUnbound && p.proxy.Binding != binding {
		return refusal(requesterapi.CodeOtherBinding)
	}
	return nil
}

func (r *simRequesters) Unbind(ctx context.Context, address, binding string, drain time.Duration) (requesterapi.Unbound, error) {
	var over chan struct{}
	err := r.call(ctx, address, func(p *simProgram) error {
		switch p.odd {
		case oddProxy:
			return nil
		case oddStays:
			return refusal(p.odd)
		}
		if p.proxy.Holding == binding {
			p.proxy.Holding = ""
		}
		if err := p.meant(binding); err != nil || p.proxy.State == requesterapi.StateUnbound {
			return err
		}
		if p.proxy.State == requesterapi.StateBound {
			p.s.unbinds(p)
			p.s.refuses(p)
			p.proxy.State, p.proxy.Ready = requesterapi.StateDraining, false
			if p.s.living(p.uid) != nil { // it is served no more, whatever became of its instance
				delete(p.s.doomed, p.uid)
			}
			p.drained = make(chan struct{})
			process, drained := p.proxy.Instance, p.drained
			longest := max(drain, 2*time.Millisecond)
			if !p.s.chance("long answers", 20) {
				longest = min(longest, 2*time.Second)
			}
			p.s.after(p.s.between("drain", time.Millisecond, longest), func() {
				close(drained)
				if p.proxy.Instance == process {
					p.proxy.State, p.proxy.ProxyConfig = requesterapi.StateUnbound, requesterapi.ProxyConfig{}
					p.s.note("%s is unbound", p.pod)
					p.endsUnbound()
				}
			})
		}
		over = p.drained
		return nil
	})
	if err != nil || over == nil {
		return requesterapi.Unbound{}, err
	}
	select {
	case <-over:
		return requesterapi.Unbound{}, nil
	case <-ctx.Done():
		return requesterapi.Unbound{}, ctx.Err()
	}
}

func (r *simRequesters) BecomeReady(ctx context.Context, address, binding string) error {
	return r.call(ctx, address, func(p *simProgram) error {
		switch err := p.meant(binding); {
		case err != nil:
			return err
		case p.proxy.Terminating:
			return refusal(requesterapi.CodeTerminating)
		case p.proxy.State != requesterapi.StateBound:
			return refusal(requesterapi.CodeUnbound)
		}
		p.proxy.Ready = true
		p.s.note("%s is ready", p.pod)
		return nil
	})
}

func (r *simRequesters) BecomeUnready(ctx context.Context, address, binding string) error {
	return r.call(ctx, address, func(p *simProgram) error {
		if err := p.meant(binding); err != nil {
			return err
		}
		if p.odd == oddUnready || p.odd == oddStays {
			return refusal(p.odd)
		}
		p.proxy.Ready = false
		p.s.note("%s is unready", p.pod)
		return nil
	})
}
