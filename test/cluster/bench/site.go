package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

const (
	system    = "hotseat-system"
	namespace = "default" // of launchers and requesters
)

// site is a cluster of a part, and who speaks to its API server.
type site struct {
	*cluster.Cluster
	config *rest.Config
	api    client.WithWatch
}

// newSite starts a cluster whose API server knows our CRDs and notes writes.
func (b *bench) newSite(part string, o cluster.Options) (s *site, err error) {
	o.Name, o.Progress, o.AuditPolicy = fmt.Sprintf("bench-%s-%d", part, os.Getpid()), b.progress, b.policy()
	c, err := cluster.Up(b.ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Down())
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	s = &site{Cluster: c, config: config}
	if s.api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("cannot speak to the API server: %w", err)
	}
	return s, s.apply(b.ctx, "deploy/chart/crds")
}

// install installs the chart, with further values. It does not wait for the controller.
func (s *site) install(ctx context.Context, values ...string) error {
	args := []string{"install", "hotseat", "deploy/chart", "--namespace", system, "--create-namespace", "--set", "controller.replicas=1"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	_, err := s.Helm(ctx, args...)
	return err
}

func (s *site) apply(ctx context.Context, path string) error {
	_, err := s.Kubectl(ctx, nil, "apply", "--server-side", "-f", path)
	return err
}

// wait waits as kubectl wait does.
func (s *site) wait(ctx context.Context, args ...string) error {
	_, err := s.Kubectl(ctx, nil, append([]string{"wait", "--timeout=" + patience.String()}, args...)...)
	return err
}

// await returns once so says yes to the Pod of that name; nil is a Pod that is gone.
func (s *site) await(ctx context.Context, name string, so func(*corev1.Pod) bool) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		done, err := s.awaitOnce(ctx, name, so)
		if done || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waited in vain for Pod %s: %w", name, context.Cause(ctx))
		}
	}
}

// awaitOnce gives up when the watch ends.
func (s *site) awaitOnce(ctx context.Context, name string, so func(*corev1.Pod) bool) (done bool, err error) {
	events, err := s.api.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return false, fmt.Errorf("cannot watch Pod %s: %w", name, err)
	}
	defer events.Stop()
	var there corev1.Pod
	switch err := s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &there); {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("cannot read Pod %s: %w", name, err)
	case err != nil && so(nil) || err == nil && so(&there):
		return true, nil
	}
	for event := range events.ResultChan() {
		pod, _ := event.Object.(*corev1.Pod)
		if event.Type == watch.Deleted {
			pod = nil
		}
		if (pod != nil || event.Type == watch.Deleted) && so(pod) {
			return true, nil
		}
	}
	return false, nil
}

func gone(pod *corev1.Pod) bool { return pod == nil }

func ready(pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// remove deletes a Pod and waits until it is gone.
func (s *site) remove(ctx context.Context, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := s.api.Delete(ctx, pod); err != nil {
		return fmt.Errorf("cannot delete Pod %s: %w", name, err)
	}
	return s.await(ctx, name, gone)
}
