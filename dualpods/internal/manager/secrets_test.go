package manager

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheChartLetsTheControllerGetSecretsOfItsOwnNamespaceAlone(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/chart/templates/rbac.yaml")
	require.NoError(t, err)
	var kinds []string
	for _, object := range strings.Split(string(text), "\n---\n") {
		_, kind, _ := strings.Cut(object, "\nkind: ")
		kind, _, _ = strings.Cut(kind, "\n")
		for _, rule := range strings.Split(object, "- apiGroups: ")[1:] {
			if strings.Contains(rule, "resources: [secrets]") && strings.Contains(rule, "verbs: [get]") {
				kinds = append(kinds, kind)
				assert.Contains(t, object, "namespace: {{ .Release.Namespace }}")
			}
			if kind == "ClusterRole" && strings.Contains(rule, "resources: [secrets]") {
				assert.NotContains(t, rule, "get", "of other namespaces the controller reads none but those with the label of launchers")
			}
		}
	}
	assert.Equal(t, []string{"Role"}, kinds)
}
