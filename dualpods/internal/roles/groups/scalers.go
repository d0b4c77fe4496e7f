package groups

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Scaler is the RoleScaler of a role, or the lack of it.
type Scaler struct {
	Held[*v1alpha1.RoleScaler]
	Role   string
	Wanted bool // the role is in the template, and its mode is External
}

func (s *Scaler) name(serving *v1alpha1.ModelServing) string { return serving.Name + "-" + s.Role }

// scalerRule is a row of the table of RoleScalers.
type scalerRule struct {
	row  string
	fits func(*World, *Scaler, *Step) bool
}

var scalers = []scalerRule{
	{"scaler not wanted", func(_ *World, sc *Scaler, s *Step) bool {
		return !sc.Wanted && sc.Is.DeletionTimestamp.IsZero() && s.writes(Delete, sc.Is)
	}},
	{"scaler being deleted", func(_ *World, sc *Scaler, _ *Step) bool { return !sc.Wanted }},
	{"scaler of an earlier one", func(w *World, sc *Scaler, s *Step) bool {
		return sc.Other == Earlier && s.after(takenPause) && s.limits(v1alpha1.ReasonWaitsForDeletion, "RoleScaler "+sc.name(w.Serving)+" of the ModelServing that had this name before is not gone yet")
	}},
	{"scaler name taken", func(w *World, sc *Scaler, s *Step) bool {
		return sc.Other == Stranger && s.after(takenPause) && s.limits(v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"RoleScaler %s exists and was not created for this ModelServing: delete it, or give the role another name; role %s has the number of replicas in the ModelServing until then", sc.name(w.Serving), sc.Role))
	}},
	{"scaler just created", func(_ *World, sc *Scaler, s *Step) bool { return sc.Unheard && s.after(hearLimit) }},
	{"create scaler", func(w *World, sc *Scaler, s *Step) bool {
		return sc.Is == nil && s.writes(Create, w.newScaler(sc))
	}},
	{"report to scaler", func(w *World, sc *Scaler, s *Step) bool {
		status := w.scalerStatus(sc)
		if sc.Is.Status == status {
			return false
		}
		after := sc.Is.DeepCopy()
		after.Status = status
		s.Was = sc.Is
		return s.writes(Report, after)
	}},
	{"scaler unchanged", func(*World, *Scaler, *Step) bool { return true }},
}

// scalerSteps returns the steps about RoleScalers.
func (w *World) scalerSteps() (steps []*Step) {
	for _, sc := range w.Scalers {
		for _, r := range scalers {
			s := &Step{Row: r.row, Scaler: sc}
			if r.fits(w, sc, s) {
				steps = append(steps, s)
				break
			}
		}
	}
	return steps
}

// limits says why a role does not have the number of replicas that was asked for. It returns true.
func (s *Step) limits(reason, why string) bool {
	s.Reason, s.Why = reason, why
	return true
}

func (w *World) newScaler(sc *Scaler) *v1alpha1.RoleScaler {
	made := &v1alpha1.RoleScaler{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Serving.Namespace, Name: sc.name(w.Serving), OwnerReferences: owners(w.Serving),
		Labels: map[string]string{podmeta.LabelServing: w.Serving.Name, podmeta.LabelServingRole: sc.Role, podmeta.LabelManagedBy: podmeta.ManagedBy},
	}}
	made.Spec.Replicas = int32(w.role(sc.Role).Count())
	return made
}

// role returns a role of the present template; nil: it has none of that name.
func (w *World) role(name string) *v1alpha1.ServingRole {
	roles := w.Serving.Spec.Template.Roles
	at := slices.IndexFunc(roles, func(r v1alpha1.ServingRole) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return &roles[at]
}

// scalerStatus returns what is said to autoscalers. They multiply the number of Pods that they see by
// what these lack, so they are shown one group: the number is that of each group.
func (w *World) scalerStatus(sc *Scaler) v1alpha1.RoleScalerStatus {
	return v1alpha1.RoleScalerStatus{
		Replicas: int32(len(w.standing.replicas(0, w.role(sc.Role)))),
		Selector: labels.SelectorFromSet(labels.Set{
			podmeta.LabelServing: w.Serving.Name, podmeta.LabelServingGroup: groupName(w.Serving, 0), podmeta.LabelServingRole: sc.Role, podmeta.LabelServingEntry: "true",
		}).String(),
	}
}

// observeScalers reads the RoleScalers.
func (c *Controller) observeScalers(ctx context.Context, w *World) error {
	var owned v1alpha1.RoleScalerList
	if err := c.listOwned(ctx, w.Serving, &owned); err != nil {
		return err
	}
	has := map[string]*v1alpha1.RoleScaler{}
	for i := range owned.Items {
		c.heard("RoleScaler", &owned.Items[i])
		has[owned.Items[i].Name] = &owned.Items[i]
	}
	for i := range w.Serving.Spec.Template.Roles {
		role := &w.Serving.Spec.Template.Roles[i]
		if !role.IsExternal() {
			continue
		}
		sc := &Scaler{Role: role.Name, Wanted: true}
		name := sc.name(w.Serving)
		if sc.Is = has[name]; sc.Is == nil {
			var err error
			if sc.Other, err = c.other(ctx, w.Serving, name, &v1alpha1.RoleScaler{}); err != nil {
				return err
			}
			sc.Unheard = c.unheard("RoleScaler", w.Serving.Namespace, name)
		}
		delete(has, name)
		w.Scalers = append(w.Scalers, sc)
	}
	for i := range owned.Items {
		sc := &Scaler{Role: owned.Items[i].Labels[podmeta.LabelServingRole]}
		// If it has another name, somebody else gave it this owner: it is left alone.
		if sc.Is = has[owned.Items[i].Name]; sc.Is != nil && sc.name(w.Serving) == sc.Is.Name {
			w.Scalers = append(w.Scalers, sc)
		}
	}
	return nil
}

// showLimits writes the condition ScalingLimited: why a role has another number of replicas than was
// asked for.
func (w *World) showLimits(s *v1alpha1.ModelServingStatus, steps []*Step, set func(kind string, is bool, reason, message string)) {
	reason, why := v1alpha1.ReasonRatioConstraint, w.Limited
	for _, step := range steps {
		if step.Scaler != nil && step.Why != "" {
			reason, why = step.Reason, step.Why
		}
	}
	wanted := func(sc *Scaler) bool { return sc.Wanted }
	switch {
	case why != "":
		set(v1alpha1.ConditionScalingLimited, true, reason, why)
	case w.Serving.Spec.Template.RatioConstraint != nil || slices.ContainsFunc(w.Scalers, wanted):
		set(v1alpha1.ConditionScalingLimited, false, v1alpha1.ReasonAsAsked, "")
	default:
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionScalingLimited })
	}
}
