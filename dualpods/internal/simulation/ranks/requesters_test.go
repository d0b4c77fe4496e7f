package ranks

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// requester is a requester program.
type requester struct {
	w       *world
	pod     *corev1.Pod // as it was placed
	gpu, ip string
	up      bool
	dead    bool // for good
	sick    bool // the kubelet finds it unready
	proxy   requesterapi.Proxy
}

func (p *requester) address() string { return "https://" + p.ip + ":8081" }

// begin starts the program, for the first time or again.
func (p *requester) begin() {
	if !p.dead {
		p.up = true
		p.proxy = requesterapi.Proxy{State: requesterapi.StateUnbound, Instance: fmt.Sprintf("%s-%d", p.pod.Name, p.w.number())}
	}
}

func (p *requester) end() {
	p.up = false
	p.proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
	p.probed()
}

// restart ends the program's container, and starts it again after d.
func (p *requester) restart(d time.Duration) {
	p.end()
	p.w.after(d/2, func() { p.w.api.changePod(p.pod, containerEnded) })
	p.w.after(d, func() {
		if p.begin(); p.up {
			p.w.api.changePod(p.pod, func(o *corev1.Pod) { runs(o, p.ip) })
		}
	})
}

// probed has the kubelet find out whether the program is ready.
func (p *requester) probed() {
	p.w.after(p.w.Between("probe", 10*time.Millisecond, 600*time.Millisecond), func() {
		is := corev1.ConditionFalse
		if p.up && p.proxy.Ready && !p.sick {
			is = corev1.ConditionTrue
		}
		p.w.api.changePod(p.pod, func(o *corev1.Pod) {
			at := metav1.Now()
			if was, since := readySince(o); !since.IsZero() && was == (is == corev1.ConditionTrue) {
				at = metav1.NewTime(since)
			}
			o.Status.Conditions = append(withoutReady(o), corev1.PodCondition{Type: corev1.PodReady, Status: is, LastTransitionTime: at})
		})
	})
}

func withoutReady(pod *corev1.Pod) (others []corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady {
			others = append(others, c)
		}
	}
	return others
}

// requesters is the way of a controller process to requester programs.
type requesters struct{ p *process }

func refusal(code string) error {
	return &spi.RefusedError{Call: "simulated", Problem: requesterapi.Problem{Status: 409, Code: code, Detail: code}}
}

func (r *requesters) call(ctx context.Context, address string, do func(*requester) error) error {
	return r.p.call(ctx, "requester", func() error {
		for _, p := range r.p.w.programs {
			if p.address() == address && p.up {
				return do(p)
			}
		}
		return errors.New("connection refused")
	})
}

func (r *requesters) Accelerators(ctx context.Context, address string) (uuids []string, err error) {
	err = r.call(ctx, address, func(p *requester) error {
		uuids = []string{p.gpu}
		return nil
	})
	return uuids, err
}

func (r *requesters) Proxy(ctx context.Context, address string) (proxy requesterapi.Proxy, err error) {
	err = r.call(ctx, address, func(p *requester) error {
		proxy = p.proxy
		return nil
	})
	return proxy, err
}

func (r *requesters) Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (proxy requesterapi.Proxy, err error) {
	err = r.call(ctx, address, func(p *requester) error {
		switch {
		case p.proxy.State == requesterapi.StateDraining:
			return refusal(requesterapi.CodeDraining)
		case p.proxy.State == requesterapi.StateBound && p.proxy.ProxyConfig != config:
			return refusal(requesterapi.CodeOtherBinding)
		case p.proxy.State == requesterapi.StateBound:
		case p.proxy.Terminating:
			return refusal(requesterapi.CodeTerminating)
		default:
			p.proxy.ProxyConfig, p.proxy.State, p.proxy.Ready = config, requesterapi.StateBound, false
			p.w.note("%s is bound", p.pod.Name)
		}
		proxy = p.proxy
		return nil
	})
	return proxy, err
}

// meant refuses a call about another binding.
func (p *requester) meant(binding string) error {
	if p.proxy.State != requesterapi.StateUnbound && p.proxy.Binding != binding {
		return refusal(requesterapi.CodeOtherBinding)
	}
	return nil
}

func (r *requesters) Unbind(ctx context.Context, address, binding string, _ time.Duration) (requesterapi.Unbound, error) {
	err := r.call(ctx, address, func(p *requester) error {
		if err := p.meant(binding); err != nil {
			return err
		}
		p.proxy.State, p.proxy.ProxyConfig, p.proxy.Ready = requesterapi.StateUnbound, requesterapi.ProxyConfig{}, false
		p.w.note("%s is unbound", p.pod.Name)
		p.probed()
		return nil
	})
	return requesterapi.Unbound{}, err
}

func (r *requesters) BecomeReady(ctx context.Context, address, binding string) error {
	return r.call(ctx, address, func(p *requester) error {
		switch err := p.meant(binding); {
		case err != nil:
			return err
		case p.proxy.Terminating:
			return refusal(requesterapi.CodeTerminating)
		case p.proxy.State != requesterapi.StateBound:
			return refusal(requesterapi.CodeUnbound)
		}
		p.proxy.Ready = true
		p.w.note("%s is ready", p.pod.Name)
		p.probed()
		p.w.crashes()
		return nil
	})
}

func (r *requesters) BecomeUnready(ctx context.Context, address, binding string) error {
	return r.call(ctx, address, func(p *requester) error {
		if err := p.meant(binding); err != nil {
			return err
		}
		p.proxy.Ready = false
		p.w.note("%s is unready", p.pod.Name)
		p.probed()
		return nil
	})
}

func (r *requesters) Hold(context.Context, string, requesterapi.Hold) (requesterapi.Proxy, error) {
	return requesterapi.Proxy{}, errors.New("the program cannot hold")
}
