package requester

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// How a requester changes hands: each event is one method here, which holds the
// lock, and the only one to write what it writes.

// bind makes config the requester's binding, and answers when its serving port
// listens, unless there is no traffic. A second one with the same config changes nothing.
func (r *Requester) bind(config requesterapi.ProxyConfig) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.bound != nil && r.bound.draining():
		return refused(requesterapi.CodeDraining, r.bound, "binding %s is being unbound: wait for DELETE to answer, then PUT again", r.bound.config.Binding)
	case r.bound != nil && r.bound.config == config:
		return nil
	case r.bound != nil && r.bound.config.Binding == config.Binding:
		return refused(requesterapi.CodeOtherBinding, r.bound, "binding %s exists already with other fields (%s): DELETE it first", config.Binding, difference(r.bound.config, config))
	case r.bound != nil:
		return refused(requesterapi.CodeOtherBinding, r.bound, "this requester is bound to %s: DELETE that first", r.bound.config.Binding)
	case r.terminating:
		return refused(requesterapi.CodeTerminating, nil, "this requester is terminating: bind another one")
	}
	hold := requesterapi.Hold{Binding: config.Binding, ServingPort: config.ServingPort}
	if config.NoTraffic {
		r.endHold()
		r.held = newBinding(hold, nil, &r.tally, r.maxConns, r.holdFor)
	} else if err := r.open(hold); err != nil {
		return err
	}
	r.bound, r.held = r.held, nil
	r.bound.serve(config)
	return nil
}

// hold has the serving port accept connections, and hold them for a binding that is to come.
// A second one for the same binding changes nothing.
func (r *Requester) hold(hold requesterapi.Hold) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.bound != nil && r.bound.draining():
		return refused(requesterapi.CodeDraining, r.bound, "binding %s is being unbound: wait for DELETE to answer", r.bound.config.Binding)
	case r.bound != nil && r.bound.isFor(hold):
		return nil
	case r.bound != nil:
		return refused(requesterapi.CodeOtherBinding, r.bound, "this requester is bound to %s: DELETE that first", r.bound.config.Binding)
	case r.terminating:
		return refused(requesterapi.CodeTerminating, nil, "this requester is terminating")
	}
	return r.open(hold)
}

// open makes the binding that holds connections, unless it is there. It resets connections that
// are held for another one before.
func (r *Requester) open(hold requesterapi.Hold) error {
	if r.held != nil && r.held.isFor(hold) {
		return nil
	}
	r.endHold()
	if slices.Contains(r.reserved, int(hold.ServingPort)) {
		return invalid("serving_port %d is the requester's own, by one of --probes-port, --spi-port, --metrics-port and --debug-port: give the port that clients of the Pod use, or change that flag", hold.ServingPort)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(r.opts.Host, strconv.Itoa(int(hold.ServingPort))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return refused(requesterapi.CodePortTaken, nil, "serving_port %d is in use by another program of this Pod: stop that program, or give another port", hold.ServingPort)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on serving_port %d: %w", hold.ServingPort, err)
	}
	r.held = newBinding(hold, l.(*net.TCPListener), &r.tally, r.maxConns, r.holdFor)
	return nil
}

// endHold resets the connections that are held, and refuses further ones.
func (r *Requester) endHold() {
	if r.held != nil {
		r.held.release()
		r.held = nil
	}
}

func difference(a, b requesterapi.ProxyConfig) string {
	switch {
	case a.NoTraffic != b.NoTraffic:
		return fmt.Sprintf("no_traffic %t", a.NoTraffic)
	case a.Target() != b.Target():
		return "target " + a.Target()
	case a.ServingPort != b.ServingPort:
		return "serving_port " + strconv.Itoa(int(a.ServingPort))
	default:
		return fmt.Sprintf("metrics_url %q", a.MetricsURL)
	}
}

// unbind makes the requester unready and refuses new connections before it
// waits for those that are open. The drain goes on when ctx ends. A second call
// joins the first, and can only make the drain shorter.
func (r *Requester) unbind(ctx context.Context, id string, limits drainFor) (requesterapi.Unbound, error) {
	r.mu.Lock()
	bound := r.bound
	if r.held != nil && r.held.config.Binding == id {
		r.endHold()
	}
	if err := r.meant(id); err != nil || bound == nil {
		r.mu.Unlock()
		return requesterapi.Unbound{}, err
	}
	r.setReady(false)
	first := bound.beginDrain(time.Now(), limits)
	r.mu.Unlock()
	if first {
		r.drains.Go(func() { r.drain(bound) })
	}
	select {
	case <-bound.gone:
		return bound.outcome, nil
	case <-ctx.Done():
		return requesterapi.Unbound{}, ctx.Err()
	}
}

func (r *Requester) drain(bound *binding) {
	bound.drain()
	r.mu.Lock()
	r.bound = nil
	r.mu.Unlock()
	close(bound.gone)
	r.opts.Logger.Info("unbound", "binding", bound.config.Binding,
		"finished", bound.outcome.Finished, "idle", bound.outcome.Idle, "cut", bound.outcome.Cut)
}

func (r *Requester) becomeReady(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.meant(id); err != nil {
		return err
	}
	switch {
	case r.terminating:
		return refused(requesterapi.CodeTerminating, r.bound, "this requester is terminating, and stays unready")
	case r.bound == nil:
		return refused(requesterapi.CodeUnbound, nil, "this requester is not bound: PUT %s first", requesterapi.PathProxyConfig)
	case r.bound.draining():
		return refused(requesterapi.CodeDraining, r.bound, "binding %s is being unbound", r.bound.config.Binding)
	}
	r.setReady(true)
	return nil
}

func (r *Requester) becomeUnready(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.meant(id); err != nil {
		return err
	}
	r.setReady(false)
	return nil
}

// meant refuses a call that names a binding while another one is there.
func (r *Requester) meant(id string) error {
	if id == "" || r.bound == nil || r.bound.config.Binding == id {
		return nil
	}
	return refused(requesterapi.CodeOtherBinding, r.bound, "this requester is bound to %s, not to %s: nothing has changed", r.bound.config.Binding, id)
}

// status is what GET answers.
func (r *Requester) status() requesterapi.Proxy {
	log, delay := r.log.known(), r.delayLeft()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := requesterapi.Proxy{Instance: r.instance, State: requesterapi.StateUnbound, Ready: r.ready, Terminating: r.terminating, CanHold: true, Log: log}
	if r.held != nil {
		p.Holding, p.Held = r.held.config.Binding, r.held.open()
	}
	if r.bound == nil {
		return p
	}
	p.ProxyConfig = r.bound.config
	p.State = requesterapi.StateBound
	if r.bound.draining() {
		p.State = requesterapi.StateDraining
	} else if delay > 0 {
		p.ShutdownDelayMS = delay.Milliseconds() + 1 // 0 is that it is over
	}
	p.Connections = r.bound.open()
	return p
}

// means is meant, for calls that touch nothing of the binding.
func (r *Requester) means(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meant(id)
}
