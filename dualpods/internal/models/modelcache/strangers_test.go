package modelcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// edit changes an object of the API server.
func edit[T client.Object](s *gatedSite, name client.ObjectKey, into T, change func(T)) {
	s.t.Helper()
	require.NoError(s.t, s.api.Get(s.t.Context(), name, into))
	change(into)
	require.NoError(s.t, s.api.Update(s.t.Context(), into))
}

func (s *gatedSite) editGroup(change func(*v1alpha1.ModelCacheNodeGroup)) {
	edit(s, client.ObjectKey{Name: "gpu"}, &v1alpha1.ModelCacheNodeGroup{}, change)
}

func (s *gatedSite) editConfig(change func(*v1alpha1.LauncherConfig)) {
	edit(s, client.ObjectKey{Namespace: "default", Name: "x"}, &v1alpha1.LauncherConfig{}, change)
}

func (s *gatedSite) editPod(change func(*corev1.Pod)) {
	edit(s, client.ObjectKey{Namespace: "default", Name: "launcher-1"}, &corev1.Pod{}, change)
}

// why returns what the status of the cache says of node n1.
func (s *gatedSite) why() string {
	s.t.Helper()
	var cache v1alpha1.ClusterModelCache
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	for _, n := range cache.Status.Nodes {
		if n.Node == "n1" {
			return n.Why
		}
	}
	return ""
}

func TestCredentialsGoToLaunchersWhoseLauncherConfigNamesTheGroup(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *gatedSite)
		calls  int
		why    string
	}{
		"it does": {func(*gatedSite) {}, 1, ""},
		"it names no group, and the Pod's label does": {func(s *gatedSite) {
			s.editConfig(func(c *v1alpha1.LauncherConfig) { c.Spec.ModelCache = nil })
		}, 0, "LauncherConfig default/x does not name ModelCacheNodeGroup gpu"},
		"it names another group": {func(s *gatedSite) {
			s.editConfig(func(c *v1alpha1.LauncherConfig) { c.Spec.ModelCache.NodeGroup = "other" })
		}, 0, "LauncherConfig default/x does not name ModelCacheNodeGroup gpu"},
		"the group lists no namespace": {func(s *gatedSite) {
			s.editGroup(func(g *v1alpha1.ModelCacheNodeGroup) { g.Spec.Namespaces = nil })
		}, 0, "spec.namespaces of ModelCacheNodeGroup gpu does not list namespace default"},
		"the group lists other namespaces": {func(s *gatedSite) {
			s.editGroup(func(g *v1alpha1.ModelCacheNodeGroup) { g.Spec.Namespaces = []string{"other"} })
		}, 0, "spec.namespaces of ModelCacheNodeGroup gpu does not list namespace default"},
		"nothing owns the Pod": {func(s *gatedSite) {
			s.editPod(func(p *corev1.Pod) { p.OwnerReferences = nil })
		}, 0, ""},
		"another object owns the Pod": {func(s *gatedSite) {
			s.editPod(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" })
		}, 0, ""},
		"the Pod is bound, and its LauncherConfig is gone": {func(s *gatedSite) {
			s.editPod(func(p *corev1.Pod) { p.Finalizers = []string{podmeta.FinalizerProvider} })
			require.NoError(s.t, s.api.Delete(s.t.Context(), &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}))
		}, 0, "its LauncherConfig is gone"},
		"the group is gone": {func(s *gatedSite) {
			second := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/models", NodeSelector: map[string]string{"gpu": "yes"}}}
			require.NoError(s.t, s.api.Create(s.t.Context(), second))
			edit(s, client.ObjectKey{Name: "llama"}, &v1alpha1.ClusterModelCache{}, func(c *v1alpha1.ClusterModelCache) { c.Spec.NodeGroups = []string{"gpu", "second"} })
			require.NoError(s.t, s.api.Delete(s.t.Context(), &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}))
		}, 0, "there is no ModelCacheNodeGroup gpu"},
		"the Pod has a label, and no folder": {func(s *gatedSite) {
			s.editPod(func(p *corev1.Pod) { p.Spec.Volumes = nil })
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGatedSite(t)
			s.token("HF_TOKEN", "right-token")
			c.change(s)
			s.pass()
			assert.Len(t, s.calls(), c.calls)
			assert.Contains(t, s.why(), c.why)
			if c.why != "" {
				assert.Contains(t, s.why(), "launcher launcher-1 gets no credentials")
			}
		})
	}
}

func TestModelsWithoutCredentialsAreFetchedForAllNamespaces(t *testing.T) {
	s := newGatedSite(t)
	s.gate.token = ""
	s.editGroup(func(g *v1alpha1.ModelCacheNodeGroup) { g.Spec.Namespaces = nil })
	edit(s, client.ObjectKey{Name: "llama"}, &v1alpha1.ClusterModelCache{}, func(c *v1alpha1.ClusterModelCache) { c.Spec.Credentials = nil })
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	s.c.calls.Wait()
	assert.Len(t, s.calls(), 1)
}

func TestLaunchersOfOtherGroupsWithTheFolderGetNoCredentials(t *testing.T) {
	other := Launcher{UID: "l0", Name: "launcher-0", Node: "n1", Group: "other", Path: "/models", Models: map[string]nodeview.Model{}, Created: now.Add(-time.Hour)}
	for name, c := range map[string]struct {
		change func(w *World)
		asked  []Call
		why    string
	}{
		"alone": {func(w *World) { w.Launchers[0] = other }, nil, "launcher launcher-0 gets no credentials: the cache does not name its ModelCacheNodeGroup other"},
		"beside one of the cache's group": {func(w *World) {
			w.Launchers = append(w.Launchers, other)
		}, []Call{fetch1}, "launcher launcher-1 is asking the source"},
		"beside one of the cache's group, for a new version": {func(w *World) {
			w.Launchers = append(w.Launchers, other)
			w.Caches[0].Status.Revision = ""
		}, []Call{fetch1}, "launcher launcher-1 is asking the source"},
		"beside one that may not have them": {func(w *World) {
			w.Launchers[0].Untrusted = "its namespace is not listed"
			w.Launchers = append(w.Launchers, other)
		}, nil, "launcher launcher-1 gets no credentials: its namespace is not listed"},
		"beside one that is silent": {func(w *World) {
			w.Launchers[0].Models = nil
			w.Launchers = append(w.Launchers, other)
		}, nil, "launcher launcher-0 gets no credentials"},
		"that holds the copy": {func(w *World) {
			w.Launchers = append(w.Launchers, other)
			w.Launchers[1].Models = map[string]nodeview.Model{"id": nodeview.NewModel(launcherapi.Model{ID: "id", State: launcherapi.ModelReady, WantedBy: []string{holder}})}
		}, []Call{fetch1}, ""},
		"and no Secret is named": {func(w *World) {
			w.Launchers = append(w.Launchers, other)
			w.Caches[0].Spec.Credentials, w.Found = nil, nil
		}, []Call{{Launcher: "l0", Holder: holder}}, "launcher launcher-0 is asking the source"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			delete(w.Nodes, "n2")
			w.Launchers = w.Launchers[:1]
			w.Launchers[0].Created = now
			w.gated("HF_TOKEN", "token")
			w.Groups["other"] = &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/models"}}
			c.change(w)
			plan := Decide(w)
			assert.Equal(t, c.asked, plan.Calls)
			assert.Contains(t, plan.Reports["llama"].Nodes[0].Why, c.why)
		})
	}
}
