//go:build cluster && clusterlong

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

func TestAKeyIsRotatedByAnAnnotation(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	before := s.poolPods()[cluster.NodeName(1)]
	s.kubectl("annotate", "launcherconfig/simulated", "hotseat.dev/token-rotation=2")
	s.eventually("the launcher without a requester has another key", func() bool {
		pod, ok := s.poolPods()[cluster.NodeName(2)]
		return ok && secretOf(&pod) != secretOf(&before)
	})
	assert.Equal(t, before.UID, s.poolPods()[cluster.NodeName(1)].UID)
	s.scale("model-a", 0) // the controller knows the other one still
	s.gone("model-a")
	s.eventually("the first key is gone with the last launcher that has it", func() bool {
		var secret corev1.Secret
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: secretOf(&before)}, &secret))
	})
	s.allReady()
	s.scale("model-b", 1)
	s.served("model-b", 1)
	s.answers("model-b")
}

func TestWhateverIsMalformedInATemplateIsToldAndWorksOnceItIsMended(t *testing.T) {
	laneOf(t)
	t.Run("a command", func(t *testing.T) {
		malformedTemplate(t, "command", []string{"vllm"}, "must be empty, because the container runs the launcher")
	})
	t.Run("what the API server alone knows", func(t *testing.T) {
		malformedTemplate(t, "imagePullPolicy", "Sometimes", "is refused by the API server")
	})
}

func TestWhatIsInTheWayOfALauncherIsNamedAndItComesOnceThatIsGone(t *testing.T) {
	s := newBareSite(t)
	s.kubectl("create", "secret", "generic", "simulated-launcher-tls")
	s.apply("examples/dual-pods/launcherconfig.yaml")
	named := "Secret " + s.ns + "/simulated-launcher-tls exists and belongs to another owner"
	status := s.configTold("the Secret is named", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAccepted, v1alpha1.ReasonNameTaken, metav1.ConditionFalse)
	})
	assert.Contains(t, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted).Message, named)
	s.eventually("an Event tells", func() bool { return s.event(s.config().UID, named) })
	assert.Empty(t, s.poolPods())
	s.kubectl("delete", "secret", "simulated-launcher-tls")
	s.allReady()

	s.kubectl("label", "secret/simulated-launcher-tls", podmeta.LabelLauncherConfig+"-") // nobody can see whose it is
	s.configTold("the Secret is named again", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAccepted, v1alpha1.ReasonNameTaken, metav1.ConditionFalse)
	})
	s.kubectl("label", "secret/simulated-launcher-tls", podmeta.LabelLauncherConfig+"=simulated")
	s.configTold("it is the LauncherConfig's own again", func(status v1alpha1.LauncherConfigStatus) bool {
		return conditionIs(status, v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, metav1.ConditionTrue)
	})
}

func TestACertificateThatSomebodyRemovedIsMadeAnew(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	var before corev1.Secret
	key := client.ObjectKey{Namespace: s.ns, Name: "simulated-launcher-tls"}
	require.NoError(t, s.api.Get(t.Context(), key, &before))
	s.kubectl("patch", "secret/simulated-launcher-tls", "--type=json", `--patch=[{"op": "remove", "path": "/data/tls.crt"}]`)
	s.eventually("there is another certificate", func() bool {
		var now corev1.Secret
		return s.api.Get(t.Context(), key, &now) == nil && len(now.Data["tls.crt"]) > 0 && string(now.Data["tls.crt"]) != string(before.Data["tls.crt"])
	})
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
}
