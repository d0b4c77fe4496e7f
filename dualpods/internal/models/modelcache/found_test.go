package modelcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// These tests repeat what the simulation found.

func TestLauncherWithoutTLSLetsAnotherAskTheSource(t *testing.T) {
	w := world()
	w.gated("HF_TOKEN", "token")
	w.Caches[0].Status.Revision = ""
	w.Launchers[0].Plain = true
	assert.Equal(t, []Call{{Launcher: "l2", Holder: holder}}, Decide(w).Calls)
}

func TestLauncherWithTLSIsPreferredInASharedFolder(t *testing.T) {
	w := world()
	older := Launcher{UID: "l0", Name: "older", Node: "n1", Group: "gpu", Path: "/models", Created: now.Add(-time.Hour), Models: map[string]nodeview.Model{}, Plain: true}
	w.Launchers[0].Created = now
	w.Launchers = append(w.Launchers, older)
	assert.Contains(t, Decide(w).Calls, fetch1)
}

func TestChangedSecretDoesNotRestartANewFetch(t *testing.T) {
	w := world()
	w.gated("HF_TOKEN", "new")
	w.Launchers = w.Launchers[:1]
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), RequestHash: "of others"}
	assert.Empty(t, Decide(w).Calls, "the watch stream does not show it yet")
	w.has(0, launcherapi.Model{State: launcherapi.ModelFailed})
	assert.Empty(t, Decide(w).Calls, "the watch stream shows the earlier try")
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), RequestHash: "of others", Tries: 1, Err: "no"}
	assert.Equal(t, []Call{fetch1}, Decide(w).Calls)
}

func TestDeletedCacheStaysWhileAFetchMayBegin(t *testing.T) {
	w := world()
	w.delete()
	assert.True(t, Decide(w).Reports["llama"].NothingLeft)
	w.Launchers = append(w.Launchers, Launcher{UID: "l3", Name: "silent", Node: "n1", Group: "gpu", Path: "/models"})
	w.Answers[Call{Launcher: "l3", Holder: holder}] = Answer{Running: true}
	assert.False(t, Decide(w).Reports["llama"].NothingLeft, "launcher-1 answers for the store and was not called")
}

func TestNodeWithoutRoomLetsAnotherAskTheSource(t *testing.T) {
	w := world()
	w.Caches[0].Status.Revision = ""
	full := Answer{AnsweredAt: now.Add(-time.Second), Tries: 9, Err: "no room", Cause: fetchapi.ReasonCapacityExceeded}
	w.Answers[fetch1] = full
	plan := Decide(w)
	assert.Equal(t, []Call{{Launcher: "l2", Holder: holder}}, plan.Calls)
	assert.Empty(t, plan.Reports["llama"].Source, "the source has answered")
	w.Answers[Call{Launcher: "l2", Holder: holder}] = full
	plan = Decide(w)
	assert.Empty(t, plan.Calls)
	assert.Equal(t, "no room", plan.Reports["llama"].Source)
	assert.Equal(t, full.retryAt(), plan.Again)
	w.Now = full.retryAt()
	assert.Equal(t, []Call{fetch1}, Decide(w).Calls)
}

func TestLastPublishedVersionCountsForSourcesWithoutRevisions(t *testing.T) {
	w := world()
	c := &w.Caches[0]
	c.Spec.Source.URI, c.Status.Revision = "https://host/llama", "old"
	earlier, later := now.Add(-time.Hour), now.Add(-time.Minute)
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Revision: "new", Published: &later})
	w.has(1, launcherapi.Model{State: launcherapi.ModelReady, Revision: "old", Published: &earlier})
	assert.Equal(t, "new", Decide(w).Reports["llama"].Revision)
	c.Spec.Source.URI = "hf://org/llama"
	assert.Equal(t, "old", Decide(w).Reports["llama"].Revision, "all nodes have the commit that the first one resolved")
}

func TestNodeKeepsItsModelWhileItsLauncherIsReplaced(t *testing.T) {
	w := world()
	w.Groups["gpu"].Spec.NodeSelector = nil
	w.Groups["other"] = w.Groups["gpu"].DeepCopy()
	w.Groups["other"].Name = "other"
	w.Launchers = w.Launchers[:1]
	w.Launchers[0].Group = "other" // with the same folder
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
	left := map[member]time.Time{{"gpu", "n1"}: now.Add(-time.Second)}
	for what, c := range map[string]struct {
		left  map[member]time.Time
		began time.Time
	}{
		"its launcher has just left":     {left: left},
		"the controller is a new leader": {began: now.Add(-time.Second)},
	} {
		w.LeadingSince, w.Departed = c.began, c.left
		plan := Decide(w)
		require.Len(t, plan.Reports["llama"].Nodes, 1, what)
		assert.Equal(t, v1alpha1.ModelNodeReady, plan.Reports["llama"].Nodes[0].State, what)
		assert.Equal(t, map[string]map[string]bool{"n1": {"llama": true}}, plan.Labels, what)
		assert.Empty(t, plan.Calls, what)
		assert.Equal(t, now.Add(replacementTime-time.Second), plan.Again, what)
	}
	w.LeadingSince, w.Departed = now.Add(-replacementTime), nil
	assert.Equal(t, []Call{{Launcher: "l1", Holder: holder, Remove: "id"}}, Decide(w).Calls, "its launcher is not replaced")
	w.Departed = map[member]time.Time{{"gpu", "n1"}: now}
	w.delete()
	assert.Equal(t, []Call{{Launcher: "l1", Holder: holder, Remove: "id"}}, Decide(w).Calls, "the cache is deleted")
}

func TestLauncherDepartsWhenItIsFoundMissing(t *testing.T) {
	s := newGatedSite(t)
	w := world()
	s.c.trackMembers(w)
	assert.Empty(t, w.Departed)
	w.Now, w.Launchers = now.Add(time.Hour), w.Launchers[1:]
	s.c.trackMembers(w)
	assert.Equal(t, map[member]time.Time{{"gpu", "n1"}: now.Add(time.Hour)}, w.Departed)
	w.Now = w.Now.Add(replacementTime - 1)
	s.c.trackMembers(w)
	assert.Len(t, w.Departed, 1)
	w.Now = w.Now.Add(1)
	s.c.trackMembers(w)
	assert.Empty(t, w.Departed)
}

func TestBrokenOffFetchKeepsAnotherLauncherWaitingForAMoment(t *testing.T) {
	w := world()
	w.Launchers = w.Launchers[:1]
	w.has(0, launcherapi.Model{State: launcherapi.ModelPartial}) // what launcher-1 sees of the fetch
	w.Launchers = append(w.Launchers, Launcher{UID: "l3", Name: "launcher-3", Node: "n1", Group: "gpu", Path: "/models", Created: now, Models: map[string]nodeview.Model{
		"id": nodeview.NewModel(launcherapi.Model{ID: "id", State: launcherapi.ModelFailed, WantedBy: []string{holder}}),
	}})
	answered := now.Add(-time.Second)
	w.Answers[Call{Launcher: "l3", Holder: holder}] = Answer{AnsweredAt: answered, Model: launcherapi.Model{URI: "hf://org/llama"}}
	plan := Decide(w)
	assert.Empty(t, plan.Calls, "launcher-3 may fetch")
	assert.Equal(t, answered.Add(watchDelay), plan.Again, "no event tells that it does not")
	w.Now = plan.Again
	assert.Equal(t, []Call{fetch1}, Decide(w).Calls)
}
