package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// answeredP95 bounds the time until a model that is awake answers through a Service whose slices
// the controller keeps.
const answeredP95 = 30 * time.Millisecond

// service times how soon a requester answers through such a Service, with kube-proxy's rules
// changed every 10 ms at most, and as often as it does by default. Changes are more than a second
// apart.
func (b *bench) service() (rows []figures.Row, err error) {
	for _, sync := range []struct {
		period, name string
		most         time.Duration
	}{{"10ms", "minSyncPeriod of kube-proxy at 10 ms", answeredP95}, {"", "kube-proxy's default of 1 s", 0}} {
		times, err := b.answersThrough(sync.period)
		if err != nil {
			return nil, err
		}
		rows = append(rows, within95("container running and wake answered → a request through a managed Service is answered, "+sync.name, times, sync.most))
	}
	return rows, nil
}

// answersThrough times hot starts with such a period of kube-proxy.
func (b *bench) answersThrough(period string) (times figures.Times, err error) {
	s, err := b.newSite("service", cluster.Options{Nodes: 1, GPUs: 2, ProxyMinSync: period})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	launcher, err := s.setUpNode(b.ctx)
	if err != nil {
		return nil, err
	}
	defer launcher.close()
	led := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "led", Annotations: map[string]string{podmeta.AnnotationEndpoints: "app=model-a"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8000}}},
	}
	if err := s.api.Create(b.ctx, led); err != nil {
		return nil, fmt.Errorf("cannot make Service led: %w", err)
	}
	if err := s.warmUp(b.ctx); err != nil {
		return nil, err
	}
	answered := map[string]time.Time{}
	var names []string
	for range b.n(20) {
		name, at, err := s.oneAnswer(b.ctx, led.Spec.ClusterIP)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		answered[name] = at
	}
	writes, err := readAudit(b.ctx, s.AuditLog(), names[len(names)-1], (*write).saysRunning)
	if err != nil {
		return nil, err
	}
	if err := b.keep("service-"+cmp.Or(period, "default"), traces(writes, launcher.moments(), names, answered)); err != nil {
		return nil, err
	}
	for _, name := range names {
		could, err := couldAnswer(writes, launcher.moments(), name, answered[name])
		if err != nil {
			return nil, err
		}
		times = append(times, answered[name].Sub(could))
	}
	return times, nil
}

// couldAnswer is when the container of a Pod ran, by the kubelet's word, and its model was awake.
func couldAnswer(writes []write, moments []launcherapi.Instance, name string, answered time.Time) (at time.Time, err error) {
	var running, awake time.Time
	for i := range writes {
		if w := &writes[i]; w.Object.Name == name && w.saysRunning() && running.IsZero() {
			running = w.Answered
		}
	}
	for _, m := range moments {
		if m.State == "awake" && m.StateSince.After(awake) && m.StateSince.Before(answered) {
			awake = m.StateSince
		}
	}
	if running.IsZero() || awake.IsZero() {
		return at, fmt.Errorf("the moments of Pod %s lack: it ran at %s, and its model was awake at %s", name, running, awake)
	}
	if awake.After(running) {
		return awake, nil
	}
	return running, nil
}

// oneAnswer starts a Pod, asks its model through the Service until it answers, and ends the Pod.
func (s *site) oneAnswer(ctx context.Context, service string) (name string, at time.Time, err error) {
	pod := requesterPod("probe", "")
	pod.GenerateName = "led-"
	if err := s.api.Create(ctx, pod); err != nil {
		return "", at, fmt.Errorf("cannot make a Pod: %w", err)
	}
	if at, err = s.untilAnswered(ctx, net.JoinHostPort(service, "8000")); err != nil {
		return "", at, err
	}
	if err := s.await(ctx, pod.Name, ready); err != nil {
		return "", at, err
	}
	if err := s.remove(ctx, pod.Name); err != nil {
		return "", at, err
	}
	select {
	case <-time.After(1500 * time.Millisecond): // changes are more than a second apart
	case <-ctx.Done():
	}
	return pod.Name, at, ctx.Err()
}

// untilAnswered asks at an address until there is an answer, and says when that came.
func (s *site) untilAnswered(ctx context.Context, address string) (at time.Time, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	transport := &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}
	for {
		once, cut := context.WithTimeout(ctx, 100*time.Millisecond)
		request, err := http.NewRequestWithContext(once, http.MethodPost, "http://"+address+"/v1/completions", strings.NewReader(`{"model":"org/model-a","prompt":"a","max_tokens":1}`))
		if err != nil {
			cut()
			return at, err
		}
		request.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(request)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close())
			if err == nil && resp.StatusCode == http.StatusOK {
				at = time.Now()
			}
		}
		cut()
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return at, fmt.Errorf("waited in vain for an answer at %s: %w", address, errors.Join(ctx.Err(), err))
		}
	}
}
