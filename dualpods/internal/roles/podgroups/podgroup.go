package podgroups

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// newPodGroup returns the PodGroup of a group, by the template that the group has. The
// replicas of a role are its subgroups where the PodGroups of the cluster have subgroups, and
// tasks with a minimum elsewhere.
func newPodGroup(serving *v1alpha1.ModelServing, of *groups.WantedGroup, subgroups bool) *volcano.PodGroup {
	group := &volcano.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: serving.Namespace, Name: of.Name,
		Labels:          map[string]string{podmeta.LabelServing: serving.Name, podmeta.LabelServingGroup: of.Name, podmeta.LabelManagedBy: podmeta.ManagedBy},
		Annotations:     map[string]string{podmeta.LabelServingRevision: of.Status.Revision},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(serving, v1alpha1.GroupVersion.WithKind(podmeta.KindServing))},
	}}
	spec := &group.Spec
	spec.Queue = serving.Annotations[volcano.QueueNameAnnotationKey]
	topology := serving.Spec.Template.NetworkTopology
	if topology != nil {
		spec.NetworkTopology = networkTopology(topology.GroupPolicy)
	}
	least := corev1.ResourceList{}
	for _, role := range rolesOf(of) {
		size, counted := len(role.replicas[0].Pods), role.counted(serving)
		spec.MinMember += int32(counted * size)
		for pod := range size {
			addTimes(least, groups.Requests(role.of, pod), counted)
		}
		if !subgroups {
			for _, r := range role.replicas[:counted] {
				if spec.MinTaskMember == nil {
					spec.MinTaskMember = map[string]int32{}
				}
				spec.MinTaskMember[r.ID] = int32(size)
			}
			continue
		}
		policy := volcano.SubGroupPolicySpec{
			Name: role.of.Name, SubGroupSize: new(int32(size)), MinSubGroups: new(int32(counted)),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				podmeta.LabelServing: serving.Name, podmeta.LabelServingGroup: of.Name, podmeta.LabelServingRole: role.of.Name,
			}},
			MatchLabelKeys: []string{podmeta.LabelServingRoleID},
		}
		if topology != nil {
			policy.NetworkTopology = networkTopology(topology.RolePolicy)
		}
		spec.SubGroupPolicy = append(spec.SubGroupPolicy, policy)
	}
	spec.MinResources = &least
	return group
}

// role has the replicas of a role in a group.
type role struct {
	of       *v1alpha1.ServingRole
	replicas []groups.WantedReplica
}

// rolesOf returns the roles of a group that have replicas.
func rolesOf(g *groups.WantedGroup) (all []*role) {
	for _, r := range g.Replicas {
		at := slices.IndexFunc(all, func(other *role) bool { return other.of.Name == r.Role.Name })
		if at < 0 {
			at, all = len(all), append(all, &role{of: r.Role})
		}
		all[at].replicas = append(all[at].replicas, r)
	}
	return all
}

// podsOf counts the Pods that a group should have.
func podsOf(of *groups.WantedGroup) (n int) {
	for _, r := range of.Replicas {
		n += len(r.Pods)
	}
	return n
}

// counted returns how many replicas get nodes together with the other roles.
func (r *role) counted(serving *v1alpha1.ModelServing) int {
	if policy := serving.Spec.Template.Gang(); policy != nil {
		return min(policy.Counted(r.of), len(r.replicas))
	}
	return len(r.replicas)
}

// networkTopology returns a policy in Volcano's words; nil: there is none.
func networkTopology(policy *v1alpha1.NetworkTopologyPolicy) *volcano.NetworkTopologySpec {
	if policy == nil {
		return nil
	}
	spec := &volcano.NetworkTopologySpec{Mode: volcano.NetworkTopologyMode(policy.Mode), HighestTierName: policy.HighestTierName}
	if policy.HighestTierAllowed != nil {
		spec.HighestTierAllowed = new(int(*policy.HighestTierAllowed))
	}
	return spec
}

// addTimes adds amounts to a sum, n times each.
func addTimes(sum, amounts corev1.ResourceList, n int) {
	if n == 0 {
		return
	}
	for name, amount := range amounts {
		each := amount.DeepCopy()
		each.Mul(int64(n))
		total := sum[name]
		if total.IsZero() {
			total = resource.Quantity{Format: each.Format}
		}
		total.Add(each)
		sum[name] = total
	}
}
