package binding

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
)

func TestOrphanedLauncherIsCalledByItsCertificateOrToken(t *testing.T) {
	for name, c := range map[string]struct{ has, gets nodeview.Access }{
		"certificate": {nodeview.Access{Name: "vllm.ours"}, nodeview.Access{Name: "vllm.ours"}},
		"token":       {nodeview.Access{Token: "sesame"}, nodeview.Access{Token: "sesame"}},
		"no Secret": {
			nodeview.Access{Refused: "it mounts no Secret at /etc/hotseat"},
			nodeview.Access{Refused: "no LauncherConfig owns it, and it mounts no Secret at /etc/hotseat. If that stays so, an administrator must delete the launcher's Pod"},
		},
		"neither": {
			nodeview.Access{},
			nodeview.Access{Refused: "no LauncherConfig owns it, and it has neither a certificate nor a token. If that stays so, an administrator must delete the launcher's Pod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			controller := New(t.Context(), Options{Access: func(*corev1.Pod) nodeview.Access { return c.has }}, logr.Discard())
			assert.Equal(t, c.gets, controller.access(&launcherPod{pod: &corev1.Pod{}, orphan: true}))
		})
	}
}
