package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// roles returns the ClusterRoles of the template roles.yaml, without what Helm fills in.
func roles(t *testing.T) (all []rbacv1.ClusterRole) {
	t.Helper()
	text, err := os.ReadFile("templates/roles.yaml")
	require.NoError(t, err)
	plain := regexp.MustCompile(`(?m)^\s*\{\{-[^}]*\}\}\n?`).ReplaceAllString(string(text), "")
	plain = regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(plain, "hotseat")
	for document := range strings.SplitSeq(plain, "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), &role), document)
		all = append(all, role)
	}
	return all
}

// grants reports whether a role that Kubernetes aggregates grants a verb on a resource.
func grants(all []rbacv1.ClusterRole, to, resource, verb string) bool {
	for _, role := range all {
		if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+to] != "true" {
			continue
		}
		for _, rule := range role.Rules {
			if strings.Join(rule.APIGroups, " ") == "hotseat.dev" && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
				return true
			}
		}
	}
	return false
}

func TestRolesOfNamespacesIncludeOurObjects(t *testing.T) {
	all := roles(t)
	files, err := filepath.Glob("crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	writable := map[string]bool{"inferenceserverconfigs": true, "modelcaches": true, "models": true, "modelservings": true, "rolescalers": true, "seatpools": true}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(text, &crd))
		kind := crd.Spec.Names.Plural
		for _, to := range []string{"view", "edit", "admin"} {
			for _, verb := range []string{"get", "list", "watch"} {
				assert.True(t, grants(all, to, kind, verb), "%s may %s %s", to, verb, kind)
			}
			for _, verb := range []string{"create", "update", "patch", "delete"} {
				assert.Equal(t, writable[kind] && to != "view", grants(all, to, kind, verb), "%s may %s %s", to, verb, kind)
			}
			assert.False(t, grants(all, to, kind+"/status", "update"), "the controller alone writes the status of %s", kind)
		}
	}
}

func TestControllerMayGetSecretsOfItsOwnNamespaceAlone(t *testing.T) {
	text, err := os.ReadFile("templates/rbac.yaml")
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
				assert.NotContains(t, rule, "get", "of other namespaces the controller reads those with the label of launchers and, by a list of one name, those that ModelCaches name")
			}
		}
	}
	assert.Equal(t, []string{"Role"}, kinds)
}
