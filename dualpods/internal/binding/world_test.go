package binding

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/nominal"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestALauncherServesRequestersOfItsNamespaceAlone(t *testing.T) {
	of := func(namespace string) *launcherPod {
		return &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: map[string]string{podmeta.LabelLauncherConfig: "vllm"},
		}}}
	}
	w := &world{launchers: []*launcherPod{of("theirs"), of("ours")}}
	for _, form := range []nominal.Form{{LauncherConfig: "vllm"}, {}} {
		found := w.candidate("ours", form)
		require.NotNil(t, found)
		assert.Equal(t, "ours", found.pod.Namespace)
		assert.Nil(t, w.candidate("elsewhere", form))
	}
}
