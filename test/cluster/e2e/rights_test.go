//go:build cluster

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// asked is an event of the API server's audit log: what the controller asked, and
// whether its roles let it.
// (https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/#audit-k8s-io-v1-Event)
type asked struct {
	Verb   string `json:"verb"`
	Object struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"` // of a list or watch: the one that its field selector names
	} `json:"objectRef"`
	Annotations struct {
		Decision string `json:"authorization.k8s.io/decision"` // what admission refuses is allowed here
	} `json:"annotations"`
}

// right is that to a verb on a resource, as people write it.
func right(group, resource, verb string) string {
	if group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

// named is a right to the objects of a name alone.
func named(right, name string) string { return right + " " + name }

// rightsTo is a right to all objects, or that to each of some names.
func rightsTo(right string, names []string) []string {
	if len(names) == 0 {
		return []string{right}
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = named(right, name)
	}
	return all
}

// checkRights compares what the controller asked of the API server, in all tests,
// with what the chart's roles let it ask: nothing was refused, and where all tests
// ran, each right was used. The API server authorizes by these roles alone, so a
// right that was used is one without which something fails.
func checkRights(ctx context.Context, all bool) error {
	if lanes[0].cluster.Audit == "" && !all {
		fmt.Fprintln(os.Stderr, "the controller's rights are not looked at: this cluster keeps no audit log")
		return nil
	}
	used := map[string]bool{}
	var refused []string
	for _, l := range lanes {
		more, not, err := readAsked(l.cluster.AuditLog())
		if err != nil {
			return err
		}
		maps.Copy(used, more)
		refused = append(refused, not...)
	}
	if len(used) == 0 {
		return errors.New("the audit log has nothing that the controller asked")
	}
	if len(refused) > 0 {
		return fmt.Errorf("the chart does not let the controller do what it does: %q", refused)
	}
	granted, err := lanes[0].rights(ctx)
	if err != nil {
		return err
	}
	if unused := neverUsed(granted, used); all && len(unused) > 0 {
		return fmt.Errorf("the chart lets the controller do what it never does: %q", unused)
	}
	return nil
}

// neverUsed are the rights that nobody made use of.
func neverUsed(granted []string, used map[string]bool) (unused []string) {
	for _, r := range granted {
		// An API server before 1.32 is asked for a list before each watch; later ones
		// tell in a watch what there is (https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists).
		if !used[r] && !used[strings.Replace(r, "list ", "watch ", 1)] {
			unused = append(unused, r)
		}
	}
	return unused
}

// readAsked reads the audit log. What was asked of an object of some name is a use
// of the right to objects of that name, and of the right to all.
func readAsked(path string) (used map[string]bool, refused []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read what the controller asked (the cluster is to be started with --audit-policy test/cluster/e2e/testdata/audit.yaml): %w", err)
	}
	defer f.Close()
	used = map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, nil, fmt.Errorf("cannot read an event of the audit log: %w", err)
		}
		resource := a.Object.Resource
		if resource == "" { // discovery, which everybody may do once the API server, started anew, has read its roles
			continue
		}
		if a.Object.Subresource != "" {
			resource += "/" + a.Object.Subresource
		}
		r := right(a.Object.Group, resource, a.Verb)
		used[r] = true
		if a.Object.Name != "" {
			r = named(r, a.Object.Name)
			used[r] = true
		}
		if a.Annotations.Decision == "forbid" && !slices.Contains(refused, r) {
			refused = append(refused, r)
		}
	}
	return used, refused, lines.Err()
}

// rights are those of the controller's roles. Finalizers are not asked for by
// themselves: whoever sets an owner that blocks its deletion has to have the right
// to them (admission plugin OwnerReferencesPermissionEnforcement).
func (l *lane) rights(ctx context.Context) (all []string, err error) {
	var cluster rbacv1.ClusterRoleList
	var roles rbacv1.RoleList
	ours := client.MatchingLabels{"app.kubernetes.io/name": "hotseat", "app.kubernetes.io/component": "controller"}
	if err := errors.Join(l.api.List(ctx, &cluster, ours), l.api.List(ctx, &roles, ours)); err != nil {
		return nil, fmt.Errorf("cannot list the controller's roles: %w", err)
	}
	var rules []rbacv1.PolicyRule
	for _, r := range cluster.Items {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles.Items {
		rules = append(rules, r.Rules...)
	}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if strings.HasSuffix(resource, "/finalizers") {
					continue
				}
				if group == "scheduling.k8s.io" && !l.cluster.PodGroups { // which are not there
					continue
				}
				for _, verb := range rule.Verbs {
					all = append(all, rightsTo(right(group, resource, verb), rule.ResourceNames)...)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the controller has no roles")
	}
	return all, nil
}

func TestARightToObjectsOfANameIsUsedByWhatIsAskedOfThem(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	event := func(verb, name, decision string) string {
		return fmt.Sprintf(`{"verb":%q,"objectRef":{"apiGroup":"coordination.k8s.io","resource":"leases","name":%q},"annotations":{"authorization.k8s.io/decision":%q}}`+"\n", verb, name, decision)
	}
	require.NoError(t, os.WriteFile(log, []byte(event("create", "", "allow")+event("get", "ours", "allow")+event("watch", "ours", "allow")+event("get", "theirs", "forbid")), 0o600))
	used, refused, err := readAsked(log)
	require.NoError(t, err)
	assert.Equal(t, []string{"get leases.coordination.k8s.io theirs"}, refused)
	to := func(verb string, names ...string) []string {
		return rightsTo(right("coordination.k8s.io", "leases", verb), names)
	}
	assert.Empty(t, neverUsed(slices.Concat(to("create"), to("get"), to("get", "ours"), to("list", "ours")), used))
	assert.Equal(t, []string{"get leases.coordination.k8s.io nobodys", "update leases.coordination.k8s.io ours"},
		neverUsed(slices.Concat(to("get", "ours", "nobodys"), to("update", "ours")), used))
}
