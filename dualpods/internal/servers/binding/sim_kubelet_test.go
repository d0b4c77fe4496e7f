package binding

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			for _, name := range sortedKeys(s.knows[l.node]) {
				if p := s.knows[l.node][name]; !p.dead || p.there() == nil { // it may not have heard of that yet
					pods = append(pods, podresourcesapi.Pod{Name: name, Containers: []podresourcesapi.Container{{
						Name: p.container, Devices: map[string][]string{string(podmeta.ResourceGPU): p.gpus},
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

// admit is what a node's kubelet does when it hears of a Pod: it gives it its devices, writes its
// status, and runs it. Until then it tells of an earlier Pod of that name what it knew last.
func (s *sim) admit(p *simProgram, pod *corev1.Pod) (lag time.Duration) {
	lag = s.between("admission", time.Millisecond, 50*time.Millisecond)
	if s.chance("kubelet lags", 5) {
		lag *= 200
	}
	s.after(lag, func() {
		if p.there() == nil {
			return
		}
		if s.knows[p.node] == nil {
			s.knows[p.node] = map[string]*simProgram{}
		}
		s.knows[p.node][p.pod] = p
		s.note("the kubelet of %s admits %s with %v", p.node, p.uid, p.gpus)
		s.after(s.between("start time", time.Millisecond, 100*time.Millisecond), func() {
			s.api.changeThis(pod, func(o *corev1.Pod) {
				if o.Status.StartTime == nil {
					o.Status.StartTime = new(metav1.Now())
				}
			})
		})
	})
	return lag
}

// withKubelet adds the container that asks the kubelet, in some of the worlds.
func (s *sim) withKubelet(launcher *corev1.Pod) {
	if s.asksKubelet {
		launcher.Spec.Containers = append(launcher.Spec.Containers, corev1.Container{Name: podmeta.PodResourcesContainer, Image: "launcher"})
	}
}
