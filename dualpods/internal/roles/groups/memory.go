package groups

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Memory keeps the templates that were read from ModelServings and their ControllerRevisions, for a caller that
// asks for all of them in each pass: reading a template takes much longer than the rest of [WantedGroups].
// Only one goroutine may use it. The zero value is ready for use.
type Memory struct {
	is, was map[types.UID]remembered
}

// remembered is the plans of a ModelServing, by revision, and the versions of the objects that they were
// read from.
type remembered struct {
	versions string
	plans    map[string]*plan
}

// Begin begins the next pass. It forgets the ModelServings that were not asked for since the last call.
func (m *Memory) Begin() { m.is, m.was = map[types.UID]remembered{}, m.is }

// plansOf returns what [readPlans] returns.
func (m *Memory) plansOf(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision) map[string]*plan {
	versions := versionsOf(serving, revisions)
	known, ok := m.is[serving.UID]
	if !ok {
		known, ok = m.was[serving.UID]
	}
	if !ok || known.versions != versions {
		known = remembered{versions, readPlans(serving, revisions)}
	}
	if m.is != nil && serving.ResourceVersion != "" {
		m.is[serving.UID] = known
	}
	return known.plans
}

// versionsOf names the versions of a ModelServing and of its ControllerRevisions.
func versionsOf(serving *v1alpha1.ModelServing, revisions []appsv1.ControllerRevision) string {
	var all strings.Builder
	all.WriteString(serving.ResourceVersion)
	for i := range revisions {
		all.WriteString("/" + string(revisions[i].UID) + "/" + revisions[i].Name + "/" + revisions[i].ResourceVersion)
	}
	return all.String()
}
