package binding

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// simKubelets is the way of a controller process to the containers beside
// launchers that ask the kubelet.
type simKubelets struct{ inc *incarnation }

func (k *simKubelets) Pods(ctx context.Context, target nodeview.Target, _ string) (pods []podresourcesapi.Pod, err error) {
	hangs := false
	err = k.inc.call(ctx, "kubelet", func() error {
		s := k.inc.s
		for _, key := range sortedKeys(s.launchers) {
			l := s.launchers[key]
			if l.dead && !l.ended || !strings.HasPrefix(target.Address, l.ip+":") {
				continue
			}
			switch s.kubelets[l.node] {
			case kubeletRefuses:
				return errors.New("the kubelet refuses")
			case kubeletHangs:
				hangs = true
				return nil
			}
			for _, name := range sortedKeys(s.api.pods) {
				if p := s.programs[s.api.pods[name].UID]; p != nil && p.node == l.node && !p.dead {
					pods = append(pods, podresourcesapi.Pod{Name: name, Containers: []podresourcesapi.Container{{
						Name: podmeta.ServingContainer, Devices: map[string][]string{string(podmeta.ResourceGPU): p.gpus},
					}}})
				}
			}
			return nil
		}
		return errors.New("connection refused")
	})
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return pods, err
}

// What a node's kubelet does with questions.
const (
	kubeletAnswers = ""
	kubeletRefuses = "refuses"
	kubeletHangs   = "hangs"
)

// withKubelet adds the container that asks the kubelet, in some of the worlds.
func (s *sim) withKubelet(launcher *corev1.Pod) {
	if s.asksKubelet {
		launcher.Spec.Containers = append(launcher.Spec.Containers, corev1.Container{Name: podmeta.PodResourcesContainer, Image: "launcher"})
	}
}
