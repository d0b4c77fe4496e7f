package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// outBy bounds how long a requester may be an endpoint of its Service after its
// model has ceased to be awake.
const outBy = time.Second

// ended is the Service of these Pods, and the value of their label app.
const ended = "ended"

// ends times how soon a Pod is no ready endpoint of its Service any more: of
// requesters whose engine is killed, or whose model is put to sleep behind the
// controller's back, in turn with a Pod of nobody's whose probe begins to fail.
func (s *site) ends(ctx context.Context, launcher *launcherclient.Client, turns int) ([]figures.Row, error) {
	if err := s.api.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ended},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": ended}, Ports: []corev1.ServicePort{{Port: 8000}}},
	}); err != nil {
		return nil, fmt.Errorf("cannot make Service %s: %w", ended, err)
	}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare", Labels: map[string]string{"app": ended}}, Spec: requesterPod("plain", "").Spec}
	bare.Spec.Containers[0].ReadinessProbe = probe("/ready")
	if err := s.api.Create(ctx, bare); err != nil {
		return nil, fmt.Errorf("cannot make Pod bare: %w", err)
	}
	var killed, asleep, failed figures.Times
	for turn := range turns {
		// The probes' second begins when a Pod becomes ready: each turn ends in another part of the next one.
		after := time.Second + time.Second*time.Duration(turn)/time.Duration(turns)
		for _, way := range []struct {
			times *figures.Times
			take  func() (time.Duration, error)
		}{
			{&killed, func() (time.Duration, error) {
				return s.oneEnd(ctx, launcher, fmt.Sprintf("killed-%d", turn), after, s.kill)
			}},
			{&asleep, func() (time.Duration, error) {
				return s.oneEnd(ctx, launcher, fmt.Sprintf("asleep-%d", turn), after, func(ctx context.Context, i launcherapi.Instance) (time.Time, error) {
					at := time.Now()
					_, err := launcher.Sleep(ctx, i.InstanceID, launcherapi.SleepRequest{})
					return at, err
				})
			}},
			{&failed, func() (time.Duration, error) { return s.oneFailure(ctx, client.ObjectKeyFromObject(bare), after) }},
		} {
			took, err := way.take()
			if err != nil {
				return nil, err
			}
			*way.times = append(*way.times, took)
		}
	}
	return []figures.Row{
		figures.Timed("engine killed → its requester is no endpoint any more; bare: a Pod whose probe begins to fail", killed, failed, 0, outBy),
		figures.Timed("model put to sleep by hand → its requester is no endpoint any more; bare: the same", asleep, failed, 0, outBy),
	}, nil
}

// oneEnd makes a requester with a model of its own, and ends what serves it, so
// long after it is ready.
func (s *site) oneEnd(ctx context.Context, launcher *launcherclient.Client, name string, after time.Duration, end func(context.Context, launcherapi.Instance) (time.Time, error)) (time.Duration, error) {
	model := "org/" + name
	pod := requesterPod("probe", name)
	pod.Labels["app"], pod.Annotations[podmeta.AnnotationServerPatch] = ended, patchFor(model)
	if err := s.api.Create(ctx, pod); err != nil {
		return 0, fmt.Errorf("cannot make Pod %s: %w", name, err)
	}
	took, err := s.untilOut(ctx, name, after, func() (time.Time, error) {
		list, err := launcher.List(ctx)
		if err != nil {
			return time.Time{}, err
		}
		for _, i := range list.Instances {
			if i.Model == model {
				return end(ctx, i)
			}
		}
		return time.Time{}, fmt.Errorf("the launcher has no instance of %s", model)
	})
	if err != nil {
		return 0, err
	}
	if err := s.api.Delete(ctx, pod); client.IgnoreNotFound(err) != nil { // the controller deletes one whose engine has died
		return 0, fmt.Errorf("cannot delete Pod %s: %w", name, err)
	}
	return took, s.await(ctx, name, gone)
}

func (s *site) kill(ctx context.Context, i launcherapi.Instance) (time.Time, error) {
	return s.Signal(ctx, 1, "KILL", cluster.Process{CommandLine: "/enginesim .*" + i.Model, PID: i.PID})
}

// oneFailure makes the bare Pod ready, and so long after that unready.
func (s *site) oneFailure(ctx context.Context, key client.ObjectKey, after time.Duration) (time.Duration, error) {
	if err := s.await(ctx, key.Name, func(p *corev1.Pod) bool {
		return p != nil && p.Status.PodIP != "" && p.Status.Phase == corev1.PodRunning
	}); err != nil {
		return 0, err
	}
	var pod corev1.Pod
	if err := s.api.Get(ctx, key, &pod); err != nil {
		return 0, fmt.Errorf("cannot read Pod %s: %w", key.Name, err)
	}
	bind, err := json.Marshal(requesterapi.ProxyConfig{Address: pod.Status.PodIP, Port: requesterapi.DefaultProbesPort, ServingPort: 8000})
	if err != nil {
		return 0, err
	}
	if err := s.tell(ctx, http.MethodPut, pod.Status.PodIP, requesterapi.PathProxyConfig, bind); err != nil {
		return 0, err
	}
	if err := s.tell(ctx, http.MethodPost, pod.Status.PodIP, requesterapi.PathBecomeReady, nil); err != nil {
		return 0, err
	}
	return s.untilOut(ctx, key.Name, after, func() (time.Time, error) {
		at := time.Now()
		return at, s.tell(ctx, http.MethodPost, pod.Status.PodIP, requesterapi.PathBecomeUnready, nil)
	})
}

// tell calls the SPI of a requester program, which listens soon.
func (s *site) tell(ctx context.Context, method, ip, path string, body []byte) error {
	transport := &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:%d%s", ip, spiPort, path), bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: transport}).Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // it is closed
			_ = resp.Body.Close()
			if resp.StatusCode < 300 {
				return nil
			}
			return fmt.Errorf("the requester program answers %s %s with %s", method, path, resp.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot call the requester program: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// untilOut waits until a Pod has been a ready endpoint of the Service for so
// long, has end end that, and gives the time from there until it is none any more.
func (s *site) untilOut(ctx context.Context, pod string, after time.Duration, end func() (time.Time, error)) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	events, err := s.api.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ended})
	if err != nil {
		return 0, fmt.Errorf("cannot watch the endpoints of Service %s: %w", ended, err)
	}
	defer events.Stop()
	if _, err := awaitEndpoint(events, pod, true); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(after):
	}
	began, err := end()
	if err != nil {
		return 0, err
	}
	at, err := awaitEndpoint(events, pod, false)
	return at.Sub(began), err
}

// awaitEndpoint says when a Pod became a ready endpoint, or ceased to be one. So
// few endpoints are in one EndpointSlice.
func awaitEndpoint(events watch.Interface, pod string, is bool) (time.Time, error) {
	for event := range events.ResultChan() {
		at := time.Now()
		if slice, ok := event.Object.(*discoveryv1.EndpointSlice); ok && hasReady(slice, pod) == is {
			return at, nil
		}
	}
	return time.Time{}, errors.New("waited in vain for Pod " + pod + " to become an endpoint, or to be none any more")
}

func hasReady(slice *discoveryv1.EndpointSlice, pod string) bool {
	for _, e := range slice.Endpoints {
		if e.TargetRef != nil && e.TargetRef.Name == pod && e.Conditions.Ready != nil && *e.Conditions.Ready {
			return true
		}
	}
	return false
}
