package subgroups

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Fields in which problems stand.
const (
	fieldOfPolicy        = "spec.template.subGroupPolicy"
	fieldOfSize          = fieldOfPolicy + ".subGroupSize"
	fieldOfGroupTopology = "metadata.annotations[" + podmeta.AnnotationExclusiveTopology + "]"
	fieldOfTopology      = "metadata.annotations[" + podmeta.AnnotationSubgroupExclusiveTopology + "]"
)

// Role is a role whose replicas a policy divides.
type Role struct {
	Name string
	Size int // how many Pods a replica has: the entry and its workers
}

// Validate returns what is wrong with a policy and with a topology. policy is nil if the
// ModelServing has none.
func Validate(policy *Policy, topology Topology, roles ...Role) (problems []podmeta.Problem) {
	problems = append(validateKey(fieldOfGroupTopology, topology.Group), validateKey(fieldOfTopology, topology.Subgroup)...)
	switch {
	case policy == nil && topology.Subgroup != "":
		return append(problems, invalid(fieldOfTopology, "needs subgroups: set "+fieldOfSize+", or remove the annotation"))
	case policy == nil:
		return problems
	case policy.Size < 1:
		return append(problems, invalid(fieldOfSize, fmt.Sprintf("is %d: set it to 1 or more, or create the ModelServing without subGroupPolicy", policy.Size)))
	}
	for _, role := range roles {
		if message := misfit(policy, role); message != "" {
			problems = append(problems, invalid(fieldOfSize, message))
		}
	}
	return append(problems, validateLevels(policy, topology, roles)...)
}

// validateLevels says what is wrong if both annotations name the same label: a domain cannot have
// a whole group for itself and only one of its subgroups.
func validateLevels(policy *Policy, topology Topology, roles []Role) []podmeta.Problem {
	severalSubgroups := func(r Role) bool { return r.Size-1 > policy.Size }
	if topology.Group == "" || topology.Group != topology.Subgroup || !slices.ContainsFunc(roles, severalSubgroups) {
		return nil
	}
	return []podmeta.Problem{invalid(fieldOfTopology, fmt.Sprintf("is %s, as the annotation %s: name the label of smaller domains, or remove one of the two", topology.Subgroup, podmeta.AnnotationExclusiveTopology))}
}

// misfit says why a policy cannot divide the Pods of a role; empty: it can.
func misfit(policy *Policy, role Role) string {
	s, pods, workers := policy.Size, role.Size, role.Size-1
	fits := func(s int) bool { return workers%s == 0 || policy.Type != LeaderExcluded && pods%s == 0 }
	what := ""
	switch {
	case s > pods:
		what = fmt.Sprintf("is larger than a replica of role %s, which has %s", role.Name, count(pods, "Pod"))
	case fits(s):
		return ""
	case policy.Type == LeaderExcluded:
		what = fmt.Sprintf("does not divide the %s of a replica of role %s, and with LeaderExcluded only workers are in subgroups", count(workers, "worker"), role.Name)
	default:
		what = fmt.Sprintf("divides neither the %s of a replica of role %s nor its %s", count(pods, "Pod"), role.Name, count(workers, "worker"))
	}
	var fitting []string
	for s := 1; s <= pods; s++ {
		if fits(s) {
			fitting = append(fitting, strconv.Itoa(s))
		}
	}
	return fmt.Sprintf("%d %s: set workerReplicas of the role so that it fits, or create the ModelServing with one of %s", s, what, strings.Join(fitting, ", "))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// validateKey says what is wrong with an annotation whose value is the key of a node label.
func validateKey(field, key string) []podmeta.Problem {
	if key == "" {
		return nil
	}
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return []podmeta.Problem{invalid(field, fmt.Sprintf("%q is no key of a node label, such as topology.kubernetes.io/zone: %s", key, strings.Join(wrong, "; ")))}
	}
	return nil
}

func invalid(field, message string) podmeta.Problem {
	return podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message}
}
