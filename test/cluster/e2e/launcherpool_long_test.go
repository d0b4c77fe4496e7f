//go:build cluster && clusterlong

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

func TestATokenIsRotatedByAnAnnotation(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	before := s.poolPods()[cluster.NodeName(1)]
	s.kubectl("annotate", "launcherconfig/simulated", "hotseat.dev/token-rotation=2")
	s.eventually("the launcher without a requester has another token", func() bool {
		pod, ok := s.poolPods()[cluster.NodeName(2)]
		return ok && tokenSecretOf(&pod) != tokenSecretOf(&before)
	})
	assert.Equal(t, before.UID, s.poolPods()[cluster.NodeName(1)].UID)
	s.scale("model-a", 0) // the controller knows the token of the other one still
	s.gone("model-a")
	s.eventually("the first token is gone with the last launcher that has it", func() bool {
		var secret corev1.Secret
		return apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: tokenSecretOf(&before)}, &secret))
	})
	s.allReady()
	s.scale("model-b", 1)
	s.served("model-b", 1)
	s.answers("model-b")
}

func TestWhateverIsMalformedInATemplateIsToldAndWorksOnceItIsMended(t *testing.T) {
	t.Run("a command", func(t *testing.T) {
		malformedTemplate(t, "command", []string{"vllm"}, "the launcher runs in its place")
	})
	t.Run("what the API server alone knows", func(t *testing.T) {
		malformedTemplate(t, "imagePullPolicy", "Sometimes", "is refused by the API server")
	})
}

func TestWhatIsInTheWayOfALauncherIsNamedAndItComesOnceThatIsGone(t *testing.T) {
	s := newBareSite(t)
	s.kubectl("create", "secret", "generic", "simulated-launcher-token")
	s.apply("examples/dual-pods/launcherconfig.yaml")
	s.configTold("the Secret is named", func(status v1alpha1.LauncherConfigStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAvailable)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "Secret "+s.ns+"/simulated-launcher-token is there")
	})
	s.kubectl("delete", "secret", "simulated-launcher-token")
	s.kubectl("annotate", "launcherconfig/simulated", "note=look-again")
	s.allReady()
}
