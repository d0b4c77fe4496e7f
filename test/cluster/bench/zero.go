package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// beyondPod bounds what a Model at zero takes longer to its first byte than a bare Pod takes to be ready.
const beyondPod = 50 * time.Millisecond

// zero times requests for a Model at zero whose model sleeps, to the first byte, in turn with a bare Pod, from its
// creation until it is ready, and with a Deployment of the engine itself, which is scaled from zero by hand. Another Pod
// holds one of the two GPUs, so that the Model gets the other each time. Then it times moves from an entry without hardware
// to the next one.
func (b *bench) zero() (rows []figures.Row, err error) {
	s, err := b.newSite("zero", cluster.Options{Nodes: 1, GPUs: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	launchers, err := s.setUpZero(b.ctx)
	if err != nil {
		return nil, err
	}
	defer launchers.close()
	door, err := s.frontDoor(b.ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.askAtZero(b.ctx, door); err != nil { // the cold start
		return nil, err
	}
	var asks []ask
	var pods, engines figures.Times
	for range b.n(20) {
		a, err := s.askAtZero(b.ctx, door)
		asks = append(asks, a)
		if err := errors.Join(err, s.barePod(b.ctx, &pods), s.bareEngine(b.ctx, &engines)); err != nil {
			return nil, err
		}
	}
	ours := took(asks)
	if _, err := wakes(asks, launchers.moments()); err != nil {
		return nil, err
	}
	if err := b.keepAsks(s, "zero", asks, launchers.moments()); err != nil {
		return nil, err
	}
	stockouts, err := b.stockouts(s, door)
	if err != nil {
		return nil, err
	}
	beyond := ours.P50() - pods.P50()
	faster := float64(engines.P50()) / float64(ours.P50())
	return []figures.Row{
		{
			Figure: "request for a Model at zero that sleeps → first byte (ms); bare: a Pod, created → ready", Samples: len(ours), Ours: ours.String(), Bare: pods.String(),
			Beside: fmt.Sprintf("%+.0f ms at p50", float64(beyond)/1e6), Target: "p50 ≤ +" + figures.Short(beyondPod), Met: beyond <= beyondPod,
		},
		{
			Figure: "the same; bare: a Deployment of the engine, scaled from zero by hand → first byte", Samples: len(ours), Ours: ours.String(), Bare: engines.String(),
			Beside: fmt.Sprintf("%.1f× faster at p50", faster),
		},
		stockouts,
	}, nil
}

const zeroModel = "model-z"

// setUpZero has a Model that goes to zero as soon as nobody asks.
func (s *site) setUpZero(ctx context.Context) (*launcherWatch, error) {
	launchers, err := s.setUpNode(ctx, "frontDoor.namespace="+namespace, "frontDoor.replicas=1")
	if err != nil {
		return nil, err
	}
	if err := s.makeZero(ctx); err != nil {
		launchers.close()
		return nil, err
	}
	return launchers, nil
}

// makeZero makes the Model, and the Pod that holds the other GPU.
func (s *site) makeZero(ctx context.Context) error {
	holder := requesterPod("plain", "holder")
	if err := s.api.Create(ctx, holder); err != nil {
		return fmt.Errorf("cannot make a Pod: %w", err)
	}
	if err := s.await(ctx, holder.Name, ready); err != nil {
		return err
	}
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: zeroModel}}
	m.Spec.URL, m.Spec.LauncherConfigName, m.Spec.ScaleDownDelaySeconds = "hf://org/"+zeroModel, "simulated", new(int32(0))
	m.Spec.Args = []string{"--gpu-memory-utilization=0.4", "--sim-load-time=" + loadTime.String()}
	if err := s.api.Create(ctx, m); err != nil {
		return fmt.Errorf("cannot make a Model: %w", err)
	}
	return s.wait(ctx, "--for=condition=Available", "mdl/"+zeroModel)
}

// frontDoor returns the address of the front door's Pod, once it is ready.
func (s *site) frontDoor(ctx context.Context) (string, error) {
	if _, err := s.Kubectl(ctx, nil, "rollout", "status", "-n", system, "deployment/hotseat-frontdoor", "--timeout="+patience.String()); err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := s.api.List(ctx, &pods, client.InNamespace(system), client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentFrontDoor}); err != nil || len(pods.Items) != 1 {
		return "", fmt.Errorf("there are %d front doors, and not one: %w", len(pods.Items), err)
	}
	return net.JoinHostPort(pods.Items[0].Status.PodIP, "8000"), nil
}

// askAtZero asks for the Model, and waits until it is at zero again.
func (s *site) askAtZero(ctx context.Context, door string) (ask, error) {
	a, err := s.ask(ctx, door, zeroModel)
	if err != nil {
		return a, err
	}
	return a, s.poll(ctx, "the Model is at zero", func() (bool, error) {
		var pods corev1.PodList
		err := s.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{podmeta.LabelModel: zeroModel})
		return len(pods.Items) == 0, err
	})
}

// chat asks for one token, and returns once the answer has begun.
func (s *site) chat(ctx context.Context, address, model string) error {
	body := []byte(`{"model":"` + model + `","prompt":"hello","max_tokens":1}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DialContext: s.Dial}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, answer.Status)
	}
	_, err = answer.Body.Read(make([]byte, 1))
	return err
}

// pollPause is the pause between looks at what no watch shows.
const pollPause = 5 * time.Millisecond

// poll waits until so says yes.
func (s *site) poll(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		done, err := so()
		if done && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, errors.Join(err, context.Cause(ctx)))
		case <-time.After(pollPause):
		}
	}
}

// barePod times a Pod without a probe.
func (s *site) barePod(ctx context.Context, into *figures.Times) error {
	pod := requesterPod("plain", "")
	pod.GenerateName = "bare-"
	began := time.Now()
	if err := s.api.Create(ctx, pod); err != nil {
		return fmt.Errorf("cannot make a Pod: %w", err)
	}
	if err := s.await(ctx, pod.Name, ready); err != nil {
		return err
	}
	*into = append(*into, time.Since(began))
	return s.remove(ctx, pod.Name)
}

// bareEngine times a Deployment of Pods that run the engine themselves, from its scaling until the engine answers.
func (s *site) bareEngine(ctx context.Context, into *figures.Times) error {
	const name = "bare-engine"
	labels := map[string]string{"app": name}
	pod := requesterPod("plain", "")
	container := &pod.Spec.Containers[0]
	container.Image, container.Command = "hotseat.local/launcher:dev", []string{"/enginesim", "serve", "org/" + name, "--port=8000", "--served-model-name", name, "--sim-load-time=" + loadTime.String()}
	container.ReadinessProbe = probe("/health")
	container.ReadinessProbe.HTTPGet.Port.IntVal = 8000
	container.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
	if err := client.IgnoreAlreadyExists(s.api.Create(ctx, d)); err != nil {
		return fmt.Errorf("cannot make a Deployment: %w", err)
	}
	scale := func(n string) error {
		_, err := s.Kubectl(ctx, nil, "scale", "deployment/"+name, "--replicas="+n)
		return err
	}
	began := time.Now()
	if err := scale("1"); err != nil {
		return err
	}
	var pods corev1.PodList
	err := s.poll(ctx, "the engine answers", func() (bool, error) {
		if err := s.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil || len(pods.Items) == 0 || pods.Items[0].Status.PodIP == "" {
			return false, err
		}
		return s.chat(ctx, net.JoinHostPort(pods.Items[0].Status.PodIP, "8000"), name) == nil, nil
	})
	if err != nil {
		return err
	}
	*into = append(*into, time.Since(began))
	if err := scale("0"); err != nil {
		return err
	}
	return s.poll(ctx, "the Deployment is at zero", func() (bool, error) {
		err := s.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(labels))
		return len(pods.Items) == 0, err
	})
}
