package placement

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// serverOf returns the form of a requester of one GPU.
func serverOf(args ...string) form.Form {
	return form.Form{Args: args, GPUs: 1, LauncherConfig: "pool"}
}

// spec is the Pod specification of the launchers.
var spec = corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: image}}}

const image = "vllm"

// nameOf returns the name of an instance on a launcher.
func nameOf(f form.Form, gpus []string) string {
	f.Image = image
	return form.InstanceID(f, gpus)
}

// gpu returns the first GPU of a node.
func gpu(node string) string { return "GPU-" + node }

// world returns a World with three nodes of one GPU, a launcher on each, and a requester.
func world() *World {
	w := &World{
		Now: now, Taken: map[string]map[string]bool{}, Promised: map[Sleeper]bool{},
		Waiting: []Requester{{UID: "r1", Namespace: "ns", Name: "r1", Created: now, Form: serverOf("org/llama"), Spec: &corev1.PodSpec{}}},
		Nodes:   map[string]*corev1.Node{},
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		w.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{}}}
		w.Launchers = append(w.Launchers, Launcher{
			Provider: dualpods.Provider{UID: types.UID("l-" + node), Namespace: "ns", Config: "pool", Spec: &spec, Ready: true},
			Name:     "launcher-" + node, Node: node,
			Since: now.Add(-time.Second), Instances: map[string]Instance{}, Models: map[string]nodeview.Model{},
		})
	}
	w.CandidateIDs = func(modelref.Name) (ids []string) { // all ids are candidates
		for i := range w.Launchers {
			ids = slices.AppendSeq(ids, maps.Keys(w.Launchers[i].Models))
		}
		return ids
	}
	return w
}

// sleeps adds a sleeping instance of a form on the first GPU of a launcher's node.
func (w *World) sleeps(on int, f form.Form, lastUsed time.Duration) Sleeper {
	l, used := &w.Launchers[on], now.Add(-lastUsed)
	i := Instance{State: string(launcher.Sleeping), GPUUUIDs: []string{gpu(l.Node)}, LastUsedAt: &used}
	id := nameOf(f, i.GPUUUIDs)
	l.Instances[id] = i
	return Sleeper{l.UID, id}
}

// cached adds a ClusterModelCache of a model.
func (w *World) cached(uri string, scheduling v1alpha1.ModelScheduling) {
	w.Caches = append(w.Caches, Cache{Name: "c", Model: modelref.Version{URI: uri, Refs: []string{"main"}}, Scheduling: scheduling})
}

func (w *World) stores(on int, m launcherapi.Model) {
	m.State = launcherapi.ModelReady
	w.Launchers[on].Models["id"] = nodeview.NewModel(m)
}

// claimed adds a claim with a model, and the launchers that read it.
func (w *World) claimed(uri, claim string, readers ...int) {
	w.Claims = append(w.Claims, Claim{Namespace: "ns", Name: claim, Model: modelref.Version{URI: uri, Refs: []string{"main"}}})
	for _, n := range readers {
		w.Launchers[n].Claims = append(w.Launchers[n].Claims, claim)
	}
}

// rows are examples of each row in spec/placement.md.
var rows = []struct {
	row    string
	what   string
	change func(w *World)
	prefer []Preference
}{
	{rowInputInvalid, "", func(w *World) {
		w.Waiting[0].Problems = []podmeta.Problem{{Kind: podmeta.Invalid, Field: "f", Message: "m"}}
		w.sleeps(0, w.Waiting[0].Form, 0)
	}, nil},
	{rowUnheard, "a launcher of its namespace is silent", func(w *World) { w.Launchers[2].Silent = true; w.sleeps(0, w.Waiting[0].Form, 0) }, nil},
	{rowUnheard, "the models of a launcher are unknown", func(w *World) { w.Launchers[2].Store, w.Launchers[2].Models = true, nil }, nil},
	{rowNowhere, "a launcher has no model store", func(w *World) { w.Launchers[2].Models = nil }, nil},
	{rowNowhere, "a launcher has been silent for long", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Since = true, now.Add(-maxUnheardWait) }, nil},
	{rowNowhere, "a launcher is silent, and the requester has waited for long", func(w *World) {
		w.Launchers[2].Silent, w.Waiting[0].Created = true, now.Add(-2*maxUnheardWait)
	}, nil},
	{rowUnheard, "a launcher is silent, and the controller is new", func(w *World) {
		w.Launchers[2].Silent, w.Waiting[0].Created, w.LeadingSince = true, now.Add(-time.Hour), now
	}, nil},
	{rowNowhere, "the silent launcher is on a cordoned node", func(w *World) { w.Launchers[2].Silent, w.Nodes["n3"].Spec.Unschedulable = true, true }, nil},
	{rowNowhere, "it sleeps on a launcher that has been silent for long", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Launchers[1].Silent, w.Launchers[1].Since = true, now.Add(-maxUnheardWait)
	}, nil},
	{rowConfigMissing, "", func(w *World) {
		w.Waiting[0].Problems = []podmeta.Problem{{Kind: podmeta.Missing, Field: "f", Message: "m"}}
	}, nil},
	{rowInputInvalid, "its configuration is not created in time", func(w *World) {
		w.Waiting[0].Problems = []podmeta.Problem{{Kind: podmeta.Missing, Field: "f", Message: "m"}}
		w.Waiting[0].Created = now.Add(-maxUnheardWait)
	}, nil},
	{rowNowhere, "it sleeps on a cordoned node", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Nodes["n2"].Spec.Unschedulable = true }, nil},
	{rowNowhere, "it sleeps on a launcher that is not ready", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Ready = false }, nil},
	{rowNowhere, "the silent launcher is not ready", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Ready = true, false }, nil},
	{rowNowhere, "the silent launcher is of another namespace", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Namespace = true, "other" }, nil},
	{rowAsleep, "", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0) }, []Preference{{"n2", weightSleeper}}},
	{rowAsleep, "it sleeps on two nodes", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, time.Hour)
		w.sleeps(1, w.Waiting[0].Form, time.Minute)
	}, []Preference{{"n2", weightSleeper}, {"n1", weightOther}}},
	{rowAsleep, "it sleeps, and is on disk elsewhere", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	}, []Preference{{"n2", weightSleeper}, {"n1", weightDisk}}},
	{rowNowhere, "it sleeps on a taken GPU", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n2"] = map[string]bool{gpu("n2"): true}
	}, nil},
	{rowAsleep, "a GPU of the same name is taken on another node", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n1"] = map[string]bool{gpu("n2"): true}
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "its sleeper is promised", func(w *World) { w.Promised[w.sleeps(1, w.Waiting[0].Form, 0)] = true }, nil},
	{rowNowhere, "another model sleeps", func(w *World) { w.sleeps(1, serverOf("org/other"), 0) }, nil},
	{rowNowhere, "it is awake", func(w *World) {
		s := w.sleeps(1, w.Waiting[0].Form, 0)
		i := w.Launchers[1].Instances[s.Instance]
		i.State = string(launcher.Awake)
		w.Launchers[1].Instances[s.Instance] = i
	}, nil},
	{rowNowhere, "it sleeps on two GPUs, and the requester wants one", func(w *World) {
		i := Instance{State: string(launcher.Sleeping), GPUUUIDs: []string{"a", "b"}}
		w.Launchers[0].Instances[nameOf(w.Waiting[0].Form, i.GPUUUIDs)] = i
	}, nil},
	{rowNowhere, "it sleeps on a launcher of another LauncherConfig", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Config = "other" }, nil},
	{rowNowhere, "it sleeps on a launcher of another namespace", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Namespace = "other" }, nil},
	{rowNowhere, "it sleeps on a launcher that lacks a mount", func(w *World) {
		w.Waiting[0].Form.Mounts = []dualpods.Mount{{Field: "f", Path: "/data", Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		w.sleeps(1, w.Waiting[0].Form, 0)
	}, nil},
	{rowInMemory, "it is on disk elsewhere, too", func(w *World) {
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n3", weightMemory}, {"n1", weightDisk}}},
	{rowAsleep, "it sleeps, and is in the page cache elsewhere", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
		w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightSleeper}, {"n3", weightMemory}, {"n1", weightDisk}}},
	{rowInMemory, "it sleeps there on a taken GPU", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n2"] = map[string]bool{gpu("n2"): true}
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightMemory}}},
	{rowOnDisk, "it is in the page cache of a cordoned node", func(w *World) {
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
		w.Nodes["n2"].Spec.Unschedulable = true
	}, []Preference{{"n1", weightDisk}}},
	{rowOnDisk, "a part of it is in main memory", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCachePart})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "another model is in main memory", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.Launchers[1].Models["other"] = nodeview.NewModel(launcherapi.Model{URI: "hf://org/other", State: launcherapi.ModelReady, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "", func(w *World) { w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}}) }, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "it is on disk, and the requester opts out", func(w *World) {
		w.Waiting[0].Form.ModelCache = "off"
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.cached("hf://org/llama", v1alpha1.SchedulingNone)
	}, nil},
	{rowNowhere, "it sleeps with a model from another place", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Waiting[0].Form.ModelCache = "require"
	}, nil},
	{rowNowhere, "another revision is on disk", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, nil},
	{rowOnDisk, "the requested revision is on disk", func(w *World) {
		w.Waiting[0].Form = serverOf("org/llama", "--revision", "v1")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "the model's name has the commit", func(w *World) {
		w.Waiting[0].Form = serverOf("--model=hf://org/llama@c1")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "its source has no revisions", func(w *World) {
		w.Waiting[0].Form = serverOf("https://host/llama")
		w.stores(2, launcherapi.Model{URI: "https://host/llama", Revision: "e1"})
	}, []Preference{{"n3", weightDisk}}},
	{rowNowhere, "it is being downloaded", func(w *World) {
		w.Launchers[1].Models["id"] = nodeview.NewModel(launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, State: launcherapi.ModelDownloading})
	}, nil},
	{rowOnClaim, "", func(w *World) { w.claimed("hf://org/llama", "models", 1) }, []Preference{{"n2", weightClaim}}},
	{rowOnClaim, "several launchers read one of several claims", func(w *World) {
		w.claimed("hf://org/other", "others", 0)
		w.claimed("hf://org/llama", "models", 0, 2)
	}, []Preference{{"n1", weightClaim}, {"n3", weightClaim}}},
	{rowOnClaim, "one reader is on a cordoned node", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.Nodes["n1"].Spec.Unschedulable = true
	}, []Preference{{"n2", weightClaim}}},
	{rowOnClaim, "another model sleeps on a reader", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.sleeps(0, serverOf("org/other"), 0)
	}, []Preference{{"n1", weightClaim}, {"n2", weightClaim}, {"n2", weightNoSleeper}, {"n3", weightNoSleeper}}},
	{rowOnClaim, "many launchers read it", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1, 2)
		for n := range maxPreferred {
			l := w.Launchers[0]
			l.Node = fmt.Sprintf("m%d", n)
			w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
			w.Launchers = append(w.Launchers, l)
		}
	}, nil},
	{rowOnDisk, "it is on disk, and on a claim elsewhere", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	}, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "no launcher reads its claim", func(w *World) { w.claimed("hf://org/llama", "models") }, nil},
	{rowNowhere, "launchers of another LauncherConfig read its claim", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Launchers[1].Config = "other"
	}, nil},
	{rowNowhere, "the reader of its claim is not ready", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Launchers[1].Ready = false
	}, nil},
	{rowNowhere, "its claim is in another namespace", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Claims[0].Namespace = "other"
	}, nil},
	{rowNowhere, "it is on a claim, and the requester opts out", func(w *World) {
		w.Waiting[0].Form.ModelCache = "off"
		w.claimed("hf://org/llama", "models", 1)
	}, nil},
	{rowNowhere, "another revision is on a claim", func(w *World) {
		w.Waiting[0].Form = serverOf("org/llama@v1")
		w.claimed("hf://org/llama", "models", 1)
	}, nil},
	{rowNowhere, "", func(*World) {}, nil},
	{rowNone, "", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/llama", v1alpha1.SchedulingNone)
	}, nil},
	{rowAsleep, "the cache of another model says None", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/other", v1alpha1.SchedulingNone)
	}, []Preference{{"n2", weightSleeper}}},
	{rowAsleep, "its cache says Require", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, 0)
		w.sleeps(1, w.Waiting[0].Form, time.Hour)
		w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
		w.Nodes["n2"].Labels["model.hotseat.dev/c"] = "ready"
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "its cache says Require, and it sleeps on a node without a copy", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
	}, nil},
	{rowAsleep, "it sleeps on a node that the requester does not select, too", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, 0)
		w.sleeps(1, w.Waiting[0].Form, time.Hour)
		w.Waiting[0].Spec.NodeSelector = map[string]string{"zone": "b"}
		w.Nodes["n2"].Labels["zone"] = "b"
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "it sleeps on a node with a taint", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Nodes["n2"].Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	}, nil},
	{rowAsleep, "it sleeps on a node with a tolerated taint", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Nodes["n2"].Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
		w.Waiting[0].Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "it sleeps on another launcher of the node", func(w *World) {
		w.Waiting[0].Form.LauncherConfig = ""
		w.Launchers[1].Node, w.Launchers[1].Config = "n1", "other"
		w.sleeps(1, w.Waiting[0].Form, 0)
	}, nil},
	{rowOnDisk, "its artifact has no tag", func(w *World) {
		w.Waiting[0].Form = serverOf("oci://host/m")
		w.stores(1, launcherapi.Model{URI: "oci://host/m:latest", Revision: "sha256:1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "its folder was pulled with the folder above it", func(w *World) {
		w.Waiting[0].Form = serverOf("s3://m/a/b/")
		w.stores(1, launcherapi.Model{URI: "s3://m/a", Revision: "1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "the name of its folder begins as that of another", func(w *World) {
		w.Waiting[0].Form = serverOf("s3://m/ab")
		w.stores(1, launcherapi.Model{URI: "s3://m/a", Revision: "1"})
	}, nil},
	{rowOnDisk, "its name has a revision, which wins over the flag", func(w *World) {
		w.Waiting[0].Form = serverOf("hf://org/llama@v1", "--revision", "v2")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
}

func TestEachRowOfTheTable(t *testing.T) {
	shown := map[string]bool{}
	for _, tt := range rows {
		t.Run(tt.row+" "+tt.what, func(t *testing.T) {
			w := world()
			tt.change(w)
			all := Decide(w)
			require.Len(t, all, 1)
			assert.Equal(t, tt.row, all[0].Row, all[0].Why)
			assert.NotEmpty(t, all[0].Why)
			if tt.row == rowNowhere { // TestColdRequesterPrefersNodesWithoutSleepers checks the nodes
				for _, p := range all[0].Prefer {
					assert.EqualValues(t, weightNoSleeper, p.Weight)
				}
			} else {
				assert.Equal(t, tt.prefer, all[0].Prefer)
			}
			assert.Equal(t, tt.row == rowAsleep, all[0].Sleeper != Sleeper{})
			assert.Equal(t, tt.row == rowUnheard || tt.row == rowConfigMissing, all[0].Wait.After(now))
			if len(w.Caches) > 0 && w.Caches[0].Scheduling == v1alpha1.SchedulingRequire {
				assert.Equal(t, "model.hotseat.dev/c", all[0].Require)
			} else {
				assert.Empty(t, all[0].Require)
			}
		})
		shown[tt.row] = true
	}
	text, err := os.ReadFile("../../../../spec/placement.md")
	require.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-zA-Z ]+) \|`).FindAllSubmatch(text, -1) {
		if name := string(row[1]); name != "row" {
			assert.True(t, shown[name], "no example of row %q", name)
			delete(shown, name)
		}
	}
	assert.Empty(t, shown, "these rows are not in the table")
}

func TestColdRequesterPrefersNodesWithoutSleepers(t *testing.T) {
	w := world()
	assert.Nil(t, Decide(w)[0].Prefer, "nothing sleeps anywhere")
	w.sleeps(0, serverOf("org/other"), 0)
	prefers := func(what string, nodes ...Preference) {
		t.Helper()
		assert.Equal(t, nodes, Decide(w)[0].Prefer, what)
	}
	prefers("nodes without sleepers", Preference{"n2", weightNoSleeper}, Preference{"n3", weightNoSleeper})
	w.Taken["n2"] = map[string]bool{gpu("n2"): true}
	prefers("nodes with free GPUs come first", Preference{"n3", weightNoSleeper}, Preference{"n2", weightNoSleeper})
	w.Nodes["n3"].Spec.Unschedulable = true
	prefers("no cordoned node", Preference{"n2", weightNoSleeper})
	w.Launchers[1].Instances = nil
	assert.Nil(t, Decide(w)[0].Prefer, "no node with an unheard launcher")
	w.Launchers[1].Instances = map[string]Instance{}
	w.sleeps(1, serverOf("org/third"), 0)
	assert.Nil(t, Decide(w)[0].Prefer, "something sleeps on each node")
}

func TestReasonNamesANodeThatTheRequesterMayNotUse(t *testing.T) {
	w := world()
	assert.Equal(t, "no node has its model on disk, or asleep on free GPUs", Decide(w)[0].Why)
	w.sleeps(1, w.Waiting[0].Form, 0)
	w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	w.Waiting[0].Spec.NodeSelector = map[string]string{"zone": "b"}
	w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
	assert.Equal(t, "node n2 has its model, but the requester may not run there; ClusterModelCache c says scheduling: Require", Decide(w)[0].Why)
}

func TestColdRequestersPreferDifferentNodes(t *testing.T) {
	w := world()
	w.sleeps(0, serverOf("org/other"), 0)
	for n := range 20 {
		l := w.Launchers[1]
		l.UID, l.Node = types.UID(fmt.Sprint("x", n)), fmt.Sprintf("x%02d", n)
		w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
		w.Launchers = append(w.Launchers, l)
	}
	second := w.Waiting[0]
	second.UID, second.Created = "r2", now.Add(time.Second)
	w.Waiting = append(w.Waiting, second)
	all := Decide(w)
	named := map[string]bool{}
	for _, d := range all {
		require.Len(t, d.Prefer, maxPreferred)
		for _, p := range d.Prefer {
			named[p.Node] = true
		}
	}
	assert.Len(t, named, 2*maxPreferred)
}

func TestOldestRequesterGetsTheSleeper(t *testing.T) {
	w := world()
	one, other := w.sleeps(0, w.Waiting[0].Form, time.Hour), w.sleeps(1, w.Waiting[0].Form, time.Minute)
	for n := range 2 {
		r := w.Waiting[0]
		r.UID, r.Created = types.UID(fmt.Sprintf("r%d", n+2)), now.Add(-time.Duration(n+1)*time.Second)
		w.Waiting = append(w.Waiting, r)
	}
	got := map[types.UID]Sleeper{}
	for _, d := range Decide(w) {
		got[d.UID] = d.Sleeper
	}
	assert.Equal(t, map[types.UID]Sleeper{"r3": other, "r2": one, "r1": {}}, got)
	assert.Empty(t, w.Promised, "the World does not change")
}

func TestOnlyOneSleeperOfAGPUIsPromised(t *testing.T) {
	w := world()
	other := w.Waiting[0]
	other.UID, other.Created, other.Form = "r2", now.Add(time.Second), serverOf("org/other")
	w.Waiting = append(w.Waiting, other)
	first := w.sleeps(0, w.Waiting[0].Form, 0)
	w.sleeps(0, other.Form, 0)
	elsewhere := w.sleeps(1, other.Form, time.Hour)
	all := Decide(w)
	assert.Equal(t, []Sleeper{first, elsewhere}, []Sleeper{all[0].Sleeper, all[1].Sleeper})
	w.Promised[first] = true
	w.Waiting = w.Waiting[1:]
	assert.Equal(t, elsewhere, Decide(w)[0].Sleeper, "an earlier promise counts, too")
}

func TestMissingMountKeepsOnlyItsOwnRequesterAway(t *testing.T) {
	w := world()
	asleep := w.sleeps(1, w.Waiting[0].Form, 0)
	w.sleeps(2, serverOf("org/other"), 0)
	w.claimed("hf://org/llama", "models", 0)
	other := w.Waiting[0]
	other.UID = "r2"
	other.Form.Mounts = []dualpods.Mount{{Field: "f", Path: "/data", Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, age := range []time.Duration{time.Second, -time.Second} { // in either order
		other.Created = now.Add(age)
		w.Waiting = []Requester{w.Waiting[0], other}
		got := map[types.UID]Decision{}
		for _, d := range Decide(w) {
			got[d.UID] = d
		}
		assert.Equal(t, asleep, got["r1"].Sleeper)
		assert.Equal(t, rowNowhere, got["r2"].Row)
		assert.Empty(t, got["r2"].Prefer, "no launcher has its mount")
	}
}

func TestRequiredLabelIsAddedToEachAffinityTerm(t *testing.T) {
	var spec corev1.PodSpec
	requireLabel(&spec, "")
	assert.Nil(t, spec.Affinity)
	requireLabel(&spec, "l")
	ours := corev1.NodeSelectorRequirement{Key: "l", Operator: corev1.NodeSelectorOpIn, Values: []string{"ready"}}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{ours}}}, required.NodeSelectorTerms)
	other := func(key string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
	}
	required.NodeSelectorTerms = []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{other("a")}}, {MatchFields: []corev1.NodeSelectorRequirement{other("metadata.name")}}, {},
	}
	requireLabel(&spec, "l")
	assert.Equal(t, []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{other("a"), ours}},
		{MatchFields: []corev1.NodeSelectorRequirement{other("metadata.name")}, MatchExpressions: []corev1.NodeSelectorRequirement{ours}},
		{},
	}, required.NodeSelectorTerms, "an empty alternative must not change")
}

func TestPreferredNodesOfEachKindAreBounded(t *testing.T) {
	w := world()
	for n := range 50 {
		l := w.Launchers[0]
		l.UID, l.Node, l.Models = types.UID(fmt.Sprint("x", n)), fmt.Sprint("x", n), map[string]nodeview.Model{}
		l.Instances = map[string]Instance{}
		w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
		w.Launchers = append(w.Launchers, l)
		switch n % 3 {
		case 0:
			w.sleeps(len(w.Launchers)-1, w.Waiting[0].Form, 0)
		case 1:
			w.stores(len(w.Launchers)-1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		default:
			w.stores(len(w.Launchers)-1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
		}
	}
	all := Decide(w)
	weights := map[int32]int{}
	for _, p := range all[0].Prefer {
		weights[p.Weight]++
	}
	assert.Equal(t, map[int32]int{weightSleeper: 1, weightOther: maxPreferred - 1, weightMemory: maxPreferred, weightDisk: maxPreferred}, weights)
}

// BenchmarkDecide decides for one requester among 1,000 nodes with 8 sleepers each and
// that number of models in each store.
func BenchmarkDecide(b *testing.B) {
	for _, models := range []int{0, 10, 100} {
		b.Run(fmt.Sprintf("models=%d", models), func(b *testing.B) { benchmarkDecide(b, models) })
	}
}

func benchmarkDecide(b *testing.B, models int) {
	b.Helper()
	w := world()
	w.Launchers = nil
	stored := map[string]nodeview.Model{}
	for m := range models {
		id := fmt.Sprintf("%032x", m)
		stored[id] = nodeview.NewModel(launcherapi.Model{ID: id, URI: fmt.Sprint("hf://org/model-", m), Refs: []string{"main"}, Revision: fmt.Sprintf("%040x", m), State: launcherapi.ModelReady})
	}
	for n := range 1000 {
		l := Launcher{
			Provider: dualpods.Provider{UID: types.UID(fmt.Sprint("l", n)), Namespace: "ns", Config: "pool", Spec: &spec, Ready: true}, Node: fmt.Sprint("n", n),
			Instances: map[string]Instance{}, Models: map[string]nodeview.Model{},
		}
		for g := range 8 {
			i := Instance{State: string(launcher.Sleeping), GPUUUIDs: []string{fmt.Sprintf("GPU-%d-%d", n, g)}}
			l.Instances[nameOf(serverOf(fmt.Sprint("org/model-", (n+g)%100)), i.GPUUUIDs)] = i
		}
		maps.Copy(l.Models, stored)
		w.Launchers = append(w.Launchers, l)
		w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
	}
	w.Waiting[0].Form = serverOf("org/model-7")
	w.CandidateIDs = func(modelref.Name) []string { return []string{fmt.Sprintf("%032x", 7)} }
	for b.Loop() {
		if d := Decide(w)[0]; d.Row != rowAsleep {
			b.Fatal(d)
		}
	}
}

func TestReasonNamesOneNodeAndCountsTheOthers(t *testing.T) {
	w := world()
	for on, says := range []string{"its model is on the disk of node n1", "its model is on the disk of node n1 and 1 more", "its model is on the disk of node n1 and 2 more"} {
		w.stores(on, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		assert.Equal(t, says, Decide(w)[0].Why)
	}
}

func TestLauncherThatBindingChoosesCountsForItsNode(t *testing.T) {
	needsData := []dualpods.Mount{{Path: "/data", Source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}}
	hasData := spec.DeepCopy()
	hasData.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	hasData.Volumes = []corev1.Volume{{Name: "data", VolumeSource: needsData[0].Source}}
	for name, c := range map[string]struct {
		older  func(*Launcher)
		mounts []dualpods.Mount
		placed bool
	}{
		"the older one works":         {func(*Launcher) {}, nil, false},
		"the older one is not ready":  {func(l *Launcher) { l.Ready = false }, nil, true},
		"the older one lacks a mount": {func(*Launcher) {}, needsData, true},
		"the older one has been silent for long": {func(l *Launcher) {
			l.Silent, l.Since, l.Stage = true, now.Add(-dualpods.LauncherPatience), dualpods.Silent
		}, nil, true},
		"the older one has been silent for a while": {func(l *Launcher) { l.Silent, l.Since = true, now.Add(-6*time.Second) }, nil, false},
	} {
		w := world()
		w.Waiting[0].Form.LauncherConfig, w.Waiting[0].Form.Image, w.Waiting[0].Form.Mounts = "", image, c.mounts
		w.Launchers = w.Launchers[:1]
		younger := w.Launchers[0]
		younger.UID, younger.Config, younger.Created, younger.Spec = "younger", "other", now, hasData
		younger.Instances = map[string]Instance{}
		c.older(&w.Launchers[0])
		w.Launchers = append(w.Launchers, younger)
		sleeper := w.sleeps(1, w.Waiting[0].Form, 0)
		if got := Decide(w)[0].Sleeper; c.placed {
			assert.Equal(t, sleeper, got, name)
		} else {
			assert.Equal(t, Sleeper{}, got, name)
		}
	}
}
