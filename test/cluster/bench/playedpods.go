package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const nodeFormat = "played-%d"

func nodeName(n int) string { return fmt.Sprintf(nodeFormat, n) }

func launcherName(n int) string { return "launcher-" + nodeName(n) }

// launcherSecret is the Secret with the token of the launchers, which the stand-in does
// not look at.
const launcherSecret = "launcher-token"

// owner makes the LauncherConfig that owns the launchers, and their Secret. The template
// has a command, so that the controller never replaces them.
func (p *played) owner() (metav1.OwnerReference, error) {
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "simulated"}}
	config.Spec.PodTemplate.Raw = []byte(`{"spec":{"containers":[{"name":"inference-server","image":"hotseat.local/launcher:dev","command":["played"]}]}}`)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: launcherSecret, Labels: map[string]string{podmeta.LabelLauncherConfig: config.Name}},
		StringData: map[string]string{"token": "played"},
	}
	if err := errors.Join(p.api.Create(p.ctx, config), p.api.Create(p.ctx, secret)); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("cannot make the LauncherConfig: %w", err)
	}
	return *metav1.NewControllerRef(config, v1alpha1.GroupVersion.WithKind("LauncherConfig")), nil
}

// agents are the Pods that the controller of DaemonSets would make, one for each node.
func (p *played) agents() (pods []*corev1.Pod, err error) {
	var set appsv1.DaemonSet
	if err := p.api.Get(p.ctx, client.ObjectKey{Namespace: system, Name: podmeta.AgentSet}, &set); err != nil {
		return nil, fmt.Errorf("cannot read the DaemonSet of the agents: %w", err)
	}
	for n := range p.nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: system, Name: podmeta.AgentSet + "-" + nodeName(n), Annotations: map[string]string{ipAnnotation: podAddress(n, agentNumber)},
				Labels:          maps.Clone(set.Spec.Template.Labels),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
			},
			Spec: *set.Spec.Template.Spec.DeepCopy(),
		}
		pod.Spec.NodeName = nodeName(n)
		pods = append(pods, pod)
	}
	return pods, nil
}

// makeNodes makes the nodes, each with an agent and a launcher, and waits until these run.
func (p *played) makeNodes() error {
	owner, err := p.owner()
	if err != nil {
		return err
	}
	agents, err := p.agents()
	if err != nil {
		return err
	}
	var launchers []*corev1.Pod
	for n := range p.nodes {
		launchers = append(launchers, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: launcherName(n), Annotations: map[string]string{ipAnnotation: podAddress(n, launcherNumber)},
				Labels:          map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "simulated"},
				OwnerReferences: []metav1.OwnerReference{owner},
			},
			Spec: corev1.PodSpec{
				NodeName: nodeName(n),
				Containers: []corev1.Container{{
					Name: podmeta.ServingContainer, Image: "hotseat.local/launcher:dev",
					VolumeMounts: []corev1.VolumeMount{{Name: launcherSecret, MountPath: "/etc/hotseat", ReadOnly: true}},
				}},
				Volumes: []corev1.Volume{{Name: launcherSecret, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: launcherSecret}}}},
			},
		})
	}
	for _, l := range launchers {
		grouped(l, p.group)
	}
	if err := p.makeBareNodes(); err != nil {
		return err
	}
	if err := p.create(append(agents, launchers...)); err != nil {
		return err
	}
	return p.until("the launchers and agents run", func(c *crowd) bool { return c.running == p.nodes && c.agents == p.nodes })
}

// makeBareNodes makes the nodes, without agents and launchers.
func (p *played) makeBareNodes() error {
	var nodes []*corev1.Node
	for n := range p.nodes {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n), Labels: map[string]string{corev1.LabelHostname: nodeName(n)}}})
	}
	if err := sideBySide(p.ctx, nodes, func(ctx context.Context, n *corev1.Node) error { return p.api.Create(ctx, n) }); err != nil {
		return fmt.Errorf("cannot make the nodes: %w", err)
	}
	return nil
}

// untilGPUs waits until all nodes say that they have GPUs.
func (p *played) untilGPUs() error {
	return p.poll(200*time.Millisecond, func(ctx context.Context) (lacks string, err error) {
		var list corev1.NodeList
		if err := p.api.List(ctx, &list); err != nil {
			return "", fmt.Errorf("cannot list the nodes: %w", err)
		}
		with := 0
		for i := range list.Items {
			if gpus := list.Items[i].Status.Allocatable[podmeta.ResourceGPU]; !gpus.IsZero() {
				with++
			}
		}
		if with < p.nodes {
			lacks = fmt.Sprintf("%d of %d nodes have GPUs", with, p.nodes)
		}
		return lacks, nil
	})
}

func (p *played) create(pods []*corev1.Pod) error {
	err := sideBySide(p.ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return p.api.Create(ctx, pod) })
	if err != nil {
		return fmt.Errorf("cannot make Pods: %w", err)
	}
	return nil
}

// arrive makes requesters that the API server names, as those of a Deployment, and then gives each
// its node, as the scheduler does.
func (p *played) arrive(pods []*corev1.Pod) error {
	if err := p.create(pods); err != nil {
		return err
	}
	err := sideBySide(p.ctx, pods, func(ctx context.Context, pod *corev1.Pod) error {
		node, _ := whose(net.ParseIP(pod.Annotations[ipAnnotation]))
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName(node)}}
		return p.api.SubResource("binding").Create(ctx, pod.DeepCopy(), binding)
	})
	if err != nil {
		return fmt.Errorf("cannot give Pods their nodes: %w", err)
	}
	return nil
}

func (p *played) delete(pods []*corev1.Pod) error {
	err := sideBySide(p.ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return p.api.Delete(ctx, pod) })
	if err != nil {
		return fmt.Errorf("cannot delete Pods: %w", err)
	}
	return nil
}

// come makes requesters and waits until all are served.
func (p *played) come(pods []*corev1.Pod) error {
	there := p.served() + len(pods)
	if err := p.arrive(pods); err != nil {
		return err
	}
	return p.until("all requesters are served", func(c *crowd) bool { return c.served == there })
}

// leave deletes requesters and waits until they are gone. The next ones have the
// same GPUs.
func (p *played) leave(pods []*corev1.Pod) error {
	left := p.present() - len(pods)
	if err := p.delete(pods); err != nil {
		return err
	}
	for n := range p.next {
		p.next[n] += (gpusOfNode - p.next[n]%gpusOfNode) % gpusOfNode
	}
	return p.until("the requesters are gone", func(c *crowd) bool { return c.requesters == left })
}

func (p *played) served() int {
	p.crowd.mu.Lock()
	defer p.crowd.mu.Unlock()
	return p.crowd.served
}

func (p *played) present() int {
	p.crowd.mu.Lock()
	defer p.crowd.mu.Unlock()
	return p.crowd.requesters
}

// requesters are new ones, not made yet: one for each of count nodes, and from the
// first node again when there are more than nodes.
func (p *played) requesters(count int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range count {
		node := i % p.nodes
		pod := requesterPod("probe", "")
		pod.GenerateName = fmt.Sprintf("r-%d-%d-", node, p.next[node])
		pod.Finalizers = []string{podmeta.FinalizerRequester} // as the policy adds it
		pod.Annotations[ipAnnotation] = podAddress(node, p.next[node])
		p.next[node]++
		pods = append(pods, pod)
	}
	return pods
}

// until waits until so is true of the Pods.
func (p *played) until(what string, so func(*crowd) bool) error {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	if err := p.crowd.until(ctx, so); err != nil {
		return fmt.Errorf("waited in vain that %s: %w (%s)", what, err, p.crowd)
	}
	return nil
}
