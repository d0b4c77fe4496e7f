//go:build cluster && clusterlong

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Images of vLLM run as root; clusters that are strict give a Pod a user of their own,
// no capabilities, and a root that nobody writes to.
func TestALauncherServesFromAReadOnlyRootWithoutCapabilitiesAndAsAnyUser(t *testing.T) {
	laneOf(t)
	for name, context := range map[string]map[string]any{
		"root":     {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []string{"ALL"}}},
		"any user": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []string{"ALL"}}, "runAsNonRoot": true, "runAsUser": 1000680000},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPool(t, func(config *v1alpha1.LauncherConfig) {
				changeTemplate(t, config, func(container map[string]any) { container["securityContext"] = context })
			})
			s.allReady()
			s.deploy(server{app: "strict"}, 1)
			pod := s.served("strict", 1)[0]
			s.answers("strict")
			s.scale("strict", 0)
			s.gone("strict")
			s.scale("strict", 1)
			s.served("strict", 1)
			s.answers("strict")
			launcher := s.pod(s.launchers()[0].Name)
			given, err := json.Marshal(launcher.Spec.Containers[0].SecurityContext)
			require.NoError(t, err)
			assert.Contains(t, string(given), `"readOnlyRootFilesystem":true`, pod.Name)
		})
	}
}
