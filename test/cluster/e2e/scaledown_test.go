//go:build cluster

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// deployPlain makes a Deployment of n Pods that run the stand-in engine themselves, and a
// Service that leads to them.
func (s *site) deployPlain(app string, hook int64, n int32) {
	s.t.Helper()
	labels := map[string]string{"app": app}
	s.service(app, labels)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	template.Spec.Containers = []corev1.Container{{
		Name: "engine", Image: "hotseat.local/launcher:dev", ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/enginesim", "serve"}, Args: []string{"org/" + app, "--port=8000"}, Lifecycle: preStop(hook),
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(8000)},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
	}}
	template.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	require.NoError(s.t, s.api.Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: app},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}))
}

// churns is how often the Deployments are scaled down and up.
const churns = 6

// churn scales requesters, and plain Pods of the same engine, down and up side by side, and
// then replaces all of them. Clients ask both meanwhile.
func churn(t *testing.T, requester server) {
	t.Helper()
	s := newSite(t)
	s.addLauncher(2)
	both := []string{"requested", "plain"}
	requester.app, requester.delay = both[0], usualDelay
	s.deploy(requester, 2)
	s.deployPlain(both[1], requester.hook, 2)
	for _, app := range both {
		s.served(app, 2)
		s.answers(app)
	}
	requested, plain := s.askAll(both[0]), s.askAll(both[1])
	for range churns {
		for _, n := range []int{1, 2} {
			for _, app := range both {
				s.scale(app, n)
			}
			s.eventually("clients go on asking", s.more(requested, plain))
		}
		for _, app := range both {
			s.served(app, 2)
		}
	}
	s.kubectl("rollout", "restart", "deployment/"+both[0], "deployment/"+both[1])
	for _, app := range both {
		s.kubectl("rollout", "status", "deployment/"+app, "--timeout="+patience.Wait().String())
		s.served(app, 2)
	}
	s.eventually("clients go on asking", s.more(requested, plain))
	lost, lostPlain := requested.stop(), plain.stop()
	t.Logf("lost: %d of %d requests to requesters, %d of %d to plain Pods", len(lost), int(requested.answered.Load())+len(lost), len(lostPlain), int(plain.answered.Load())+len(lostPlain))
	assert.LessOrEqual(t, len(lost), len(lostPlain), "lost: %q; of plain Pods: %q", lost, lostPlain)
	s.scale(both[0], 0)
	s.gone(both[0])
	s.eventually("all models sleep", func() bool {
		return len(s.pids(both[0], []string{"launcher-node-1", "launcher-node-2"}, "awake")) == 0
	})
}

func TestRequestersThatComeAndGoLoseNoMoreRequestsThanPlainPods(t *testing.T) { churn(t, server{}) }

func TestRequestersWithAPreStopHookLoseNoMoreRequestsThanPlainPods(t *testing.T) {
	churn(t, server{hook: 3})
}

// endedByTheKubelet has the kubelet end Pods that nobody deletes: their deadline has passed.
func endedByTheKubelet(t *testing.T, hook int64) {
	t.Helper()
	s := newSite(t)
	s.addLauncher(2)
	both := []string{"requested", "plain"}
	s.deploy(server{app: both[0], delay: usualDelay, hook: hook}, 2)
	s.deployPlain(both[1], hook, 2)
	for _, app := range both {
		s.served(app, 2)
		s.answers(app)
	}
	requested, plain := s.askAll(both[0]), s.askAll(both[1])
	for range 2 {
		for _, app := range both {
			ends := s.served(app, 2)[0].Name
			s.kubectl("patch", "pod", ends, "--type=merge", "--patch", `{"spec": {"activeDeadlineSeconds": 1}}`)
			s.eventually(ends+" has ended", func() bool { return s.pod(ends).Status.Phase == corev1.PodFailed })
			assert.Nil(t, s.pod(ends).DeletionTimestamp, "nobody deleted it")
			assert.NotContains(t, s.kubectl("logs", ends), "the controller has not unbound this requester", "it is to be unbound while its program runs")
			s.served(app, 2)
		}
		s.eventually("clients go on asking", s.more(requested, plain))
	}
	lost, lostPlain := requested.stop(), plain.stop()
	t.Logf("lost: %d of %d requests to requesters, %d of %d to plain Pods", len(lost), int(requested.answered.Load())+len(lost), len(lostPlain), int(plain.answered.Load())+len(lostPlain))
	assert.LessOrEqual(t, len(lost), len(lostPlain), "lost: %q; of plain Pods: %q", lost, lostPlain)
}

func TestRequestersThatTheKubeletEndsLoseNoMoreRequestsThanPlainPods(t *testing.T) {
	endedByTheKubelet(t, 0)
}
