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

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/nominal"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// form is that of a requester of one GPU.
func form(args ...string) nominal.Form {
	return nominal.Form{Args: args, GPUs: 1, LauncherConfig: "pool"}
}

// spec is that of the launchers, whose image is that of their instances.
var spec = corev1.PodSpec{Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: image}}}

const image = "vllm"

// nameOf is the name of an instance on a launcher.
func nameOf(f nominal.Form, gpus []string) string {
	f.Image = image
	return nominal.InstanceID(f, gpus)
}

// gpu is the first GPU of a node.
func gpu(node string) string { return "GPU-" + node }

// world is one with three nodes of one GPU, a launcher on each, and a requester.
func world() *World {
	w := &World{
		Now: now, Taken: map[string]map[string]bool{}, Promised: map[Sleeper]bool{},
		Waiting: []Requester{{UID: "r1", Namespace: "ns", Name: "r1", Created: now, Form: form("org/llama"), Spec: &corev1.PodSpec{}}},
		Nodes:   map[string]*corev1.Node{},
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		w.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{}}}
		w.Launchers = append(w.Launchers, Launcher{
			UID: types.UID("l-" + node), Name: "launcher-" + node, Namespace: "ns", Node: node, Config: "pool", Spec: &spec, Runs: true,
			Since: now.Add(-time.Second), Instances: map[string]launcherapi.Instance{}, Models: map[string]nodeview.Model{},
		})
	}
	w.Called = func(modelref.Name) (ids []string) { // each of them may be meant
		for i := range w.Launchers {
			ids = slices.AppendSeq(ids, maps.Keys(w.Launchers[i].Models))
		}
		return ids
	}
	return w
}

// sleeps has an instance of a form sleep on the first GPU of a launcher's node.
func (w *World) sleeps(on int, f nominal.Form, lastUsed time.Duration) Sleeper {
	l, used := &w.Launchers[on], now.Add(-lastUsed)
	i := launcherapi.Instance{State: string(launcher.Sleeping), LastUsedAt: &used}
	i.GPUUUIDs = []string{gpu(l.Node)}
	i.InstanceID = nameOf(f, i.GPUUUIDs)
	l.Instances[i.InstanceID] = i
	return Sleeper{l.UID, i.InstanceID}
}

// cached has a ClusterModelCache say where requesters of a model go.
func (w *World) cached(uri string, scheduling v1alpha1.ModelScheduling) {
	w.Caches = append(w.Caches, Cache{Name: "c", Model: modelref.Version{URI: uri, Refs: []string{"main"}}, Scheduling: scheduling})
}

func (w *World) stores(on int, m launcherapi.Model) {
	m.State = launcherapi.ModelReady
	w.Launchers[on].Models["id"] = nodeview.Kept(m)
}

// claimed has a ModelCache keep a model on a claim of the namespace, and launchers read it.
func (w *World) claimed(uri, claim string, readers ...int) {
	w.Claims = append(w.Claims, Claim{Namespace: "ns", Name: claim, Model: modelref.Version{URI: uri, Refs: []string{"main"}}})
	for _, n := range readers {
		w.Launchers[n].Claims = append(w.Launchers[n].Claims, claim)
	}
}

// rows are the examples of spec/placement.md, by row.
var rows = []struct {
	row    string
	what   string
	change func(w *World)
	prefer []Preference
}{
	{rowInputWrong, "", func(w *World) {
		w.Waiting[0].Problems = []podmeta.Problem{{Kind: podmeta.Invalid, Field: "f", Message: "m"}}
		w.sleeps(0, w.Waiting[0].Form, 0)
	}, nil},
	{rowNotHeard, "of its namespace", func(w *World) { w.Launchers[2].Silent = true; w.sleeps(0, w.Waiting[0].Form, 0) }, nil},
	{rowNotHeard, "its models are not known yet", func(w *World) { w.Launchers[2].Store, w.Launchers[2].Models = true, nil }, nil},
	{rowNowhere, "it has no store of models", func(w *World) { w.Launchers[2].Models = nil }, nil},
	{rowNowhere, "not heard for long", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Since = true, now.Add(-longestWait) }, nil},
	{rowNowhere, "by a requester that waits for long", func(w *World) {
		w.Launchers[2].Silent, w.Waiting[0].Created = true, now.Add(-2*longestWait)
	}, nil},
	{rowNotHeard, "by one that waited for a controller", func(w *World) {
		w.Launchers[2].Silent, w.Waiting[0].Created, w.Began = true, now.Add(-time.Hour), now
	}, nil},
	{rowNowhere, "one that is not heard is on a node that is closed", func(w *World) { w.Launchers[2].Silent, w.Nodes["n3"].Spec.Unschedulable = true, true }, nil},
	{rowNowhere, "it sleeps with a launcher that has not answered for long", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Launchers[1].Silent, w.Launchers[1].Since = true, now.Add(-longestWait)
	}, nil},
	{rowLacks, "", func(w *World) {
		w.Waiting[0].Lacks, w.Waiting[0].Problems = "InferenceServerConfig c", []podmeta.Problem{{Kind: podmeta.Invalid, Field: "f", Message: "m"}}
	}, nil},
	{rowInputWrong, "what it names does not come", func(w *World) {
		w.Waiting[0].Lacks, w.Waiting[0].Problems = "InferenceServerConfig c", []podmeta.Problem{{Kind: podmeta.Invalid, Field: "f", Message: "m"}}
		w.Waiting[0].Created = now.Add(-longestWait)
	}, nil},
	{rowNowhere, "it sleeps on a node that is closed", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Nodes["n2"].Spec.Unschedulable = true }, nil},
	{rowNowhere, "it sleeps with a launcher that is not ready", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Runs = false }, nil},
	{rowNowhere, "one that is not heard starts", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Runs = true, false }, nil},
	{rowNowhere, "one that is not heard is of another namespace", func(w *World) { w.Launchers[2].Silent, w.Launchers[2].Namespace = true, "other" }, nil},
	{rowAsleep, "", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0) }, []Preference{{"n2", weightSleeper}}},
	{rowAsleep, "on two nodes: the one that was used last", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, time.Hour)
		w.sleeps(1, w.Waiting[0].Form, time.Minute)
	}, []Preference{{"n2", weightSleeper}, {"n1", weightOther}}},
	{rowAsleep, "and on disk elsewhere", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	}, []Preference{{"n2", weightSleeper}, {"n1", weightDisk}}},
	{rowNowhere, "its GPU is taken", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n2"] = map[string]bool{gpu("n2"): true}
	}, nil},
	{rowAsleep, "a GPU of that name is taken on another node", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n1"] = map[string]bool{gpu("n2"): true}
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "it is promised", func(w *World) { w.Promised[w.sleeps(1, w.Waiting[0].Form, 0)] = true }, nil},
	{rowNowhere, "another model sleeps", func(w *World) { w.sleeps(1, form("org/other"), 0) }, nil},
	{rowNowhere, "it is awake", func(w *World) {
		s := w.sleeps(1, w.Waiting[0].Form, 0)
		i := w.Launchers[1].Instances[s.Instance]
		i.State = string(launcher.Awake)
		w.Launchers[1].Instances[s.Instance] = i
	}, nil},
	{rowNowhere, "it sleeps on two GPUs, and one is asked for", func(w *World) {
		i := launcherapi.Instance{State: string(launcher.Sleeping)}
		i.GPUUUIDs = []string{"a", "b"}
		i.InstanceID = nameOf(w.Waiting[0].Form, i.GPUUUIDs)
		w.Launchers[0].Instances[i.InstanceID] = i
	}, nil},
	{rowNowhere, "it sleeps with a launcher of another LauncherConfig", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Config = "other" }, nil},
	{rowNowhere, "it sleeps with a launcher of another namespace", func(w *World) { w.sleeps(1, w.Waiting[0].Form, 0); w.Launchers[1].Namespace = "other" }, nil},
	{rowNowhere, "it sleeps with a launcher that lacks what it needs mounted", func(w *World) {
		w.Waiting[0].Form.Mounts = []nominal.Mount{{Field: "f", Path: "/data", Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		w.sleeps(1, w.Waiting[0].Form, 0)
	}, nil},
	{rowInMemory, "and on disk elsewhere", func(w *World) {
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n3", weightMemory}, {"n1", weightDisk}}},
	{rowAsleep, "and in the page cache elsewhere", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
		w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightSleeper}, {"n3", weightMemory}, {"n1", weightDisk}}},
	{rowInMemory, "it sleeps there on a GPU that is taken", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Taken["n2"] = map[string]bool{gpu("n2"): true}
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightMemory}}},
	{rowOnDisk, "in the page cache of a node that is closed", func(w *World) {
		w.stores(0, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCacheWhole})
		w.Nodes["n2"].Spec.Unschedulable = true
	}, []Preference{{"n1", weightDisk}}},
	{rowOnDisk, "main memory holds a part of it", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, PageCache: launcherapi.PageCachePart})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "main memory holds another model", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.Launchers[1].Models["other"] = nodeview.Kept(launcherapi.Model{URI: "hf://org/other", State: launcherapi.ModelReady, PageCache: launcherapi.PageCacheWhole})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "", func(w *World) { w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}}) }, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "on disk, where the requester says that it does not want that", func(w *World) {
		w.Waiting[0].Form.ModelCache = "off"
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		w.cached("hf://org/llama", v1alpha1.SchedulingNone)
	}, nil},
	{rowNowhere, "asleep with the model from elsewhere than is asked for", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Waiting[0].Form.ModelCache = "require"
	}, nil},
	{rowNowhere, "on disk, another revision", func(w *World) {
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, nil},
	{rowOnDisk, "that revision", func(w *World) {
		w.Waiting[0].Form = form("org/llama", "--revision", "v1")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "that commit, in the model's name", func(w *World) {
		w.Waiting[0].Form = form("--model=hf://org/llama@c1")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "from a source without revisions", func(w *World) {
		w.Waiting[0].Form = form("https://host/llama")
		w.stores(2, launcherapi.Model{URI: "https://host/llama", Revision: "e1"})
	}, []Preference{{"n3", weightDisk}}},
	{rowNowhere, "not whole", func(w *World) {
		w.Launchers[1].Models["id"] = nodeview.Kept(launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}, State: launcherapi.ModelDownloading})
	}, nil},
	{rowOnClaim, "", func(w *World) { w.claimed("hf://org/llama", "models", 1) }, []Preference{{"n2", weightClaim}}},
	{rowOnClaim, "one of several claims, that several read", func(w *World) {
		w.claimed("hf://org/other", "others", 0)
		w.claimed("hf://org/llama", "models", 0, 2)
	}, []Preference{{"n1", weightClaim}, {"n3", weightClaim}}},
	{rowOnClaim, "also of a node that is closed", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.Nodes["n1"].Spec.Unschedulable = true
	}, []Preference{{"n2", weightClaim}}},
	{rowOnClaim, "some that read it have what sleeps", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.sleeps(0, form("org/other"), 0)
	}, []Preference{{"n1", weightClaim}, {"n2", weightClaim}, {"n2", weightAwake}, {"n3", weightAwake}}},
	{rowOnClaim, "more read it than are named", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1, 2)
		for n := range maxPreferred {
			l := w.Launchers[0]
			l.Node = fmt.Sprintf("m%d", n)
			w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
			w.Launchers = append(w.Launchers, l)
		}
	}, nil},
	{rowOnDisk, "and on a claim elsewhere", func(w *World) {
		w.claimed("hf://org/llama", "models", 0, 1)
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	}, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "on a claim that no launcher reads", func(w *World) { w.claimed("hf://org/llama", "models") }, nil},
	{rowNowhere, "on a claim that launchers of another LauncherConfig read", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Launchers[1].Config = "other"
	}, nil},
	{rowNowhere, "on a claim whose launcher is not ready", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Launchers[1].Runs = false
	}, nil},
	{rowNowhere, "on a claim of that name in another namespace", func(w *World) {
		w.claimed("hf://org/llama", "models", 1)
		w.Claims[0].Namespace = "other"
	}, nil},
	{rowNowhere, "on a claim, where the requester says that it does not want that", func(w *World) {
		w.Waiting[0].Form.ModelCache = "off"
		w.claimed("hf://org/llama", "models", 1)
	}, nil},
	{rowNowhere, "another revision on a claim", func(w *World) {
		w.Waiting[0].Form = form("org/llama@v1")
		w.claimed("hf://org/llama", "models", 1)
	}, nil},
	{rowNowhere, "", func(*World) {}, nil},
	{rowNone, "", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/llama", v1alpha1.SchedulingNone)
	}, nil},
	{rowAsleep, "another model says None", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/other", v1alpha1.SchedulingNone)
	}, []Preference{{"n2", weightSleeper}}},
	{rowAsleep, "its model says Require", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, 0)
		w.sleeps(1, w.Waiting[0].Form, time.Hour)
		w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
		w.Nodes["n2"].Labels["model.hotseat.dev/c"] = "ready"
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "its model says Require, and sleeps where no copy is", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
	}, nil},
	{rowAsleep, "also on a node that the requester does not select", func(w *World) {
		w.sleeps(0, w.Waiting[0].Form, 0)
		w.sleeps(1, w.Waiting[0].Form, time.Hour)
		w.Waiting[0].Spec.NodeSelector = map[string]string{"zone": "b"}
		w.Nodes["n2"].Labels["zone"] = "b"
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "it sleeps on a node whose taint the requester does not tolerate", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Nodes["n2"].Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	}, nil},
	{rowAsleep, "on a node whose taint the requester tolerates", func(w *World) {
		w.sleeps(1, w.Waiting[0].Form, 0)
		w.Nodes["n2"].Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
		w.Waiting[0].Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}, []Preference{{"n2", weightSleeper}}},
	{rowNowhere, "it sleeps with another launcher of the node than the one that would serve", func(w *World) {
		w.Waiting[0].Form.LauncherConfig = ""
		w.Launchers[1].Node, w.Launchers[1].Config = "n1", "other"
		w.sleeps(1, w.Waiting[0].Form, 0)
	}, nil},
	{rowOnDisk, "an artifact without a tag", func(w *World) {
		w.Waiting[0].Form = form("oci://host/m")
		w.stores(1, launcherapi.Model{URI: "oci://host/m:latest", Revision: "sha256:1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowOnDisk, "in a folder that was pulled with the one above it", func(w *World) {
		w.Waiting[0].Form = form("s3://m/a/b/")
		w.stores(1, launcherapi.Model{URI: "s3://m/a", Revision: "1"})
	}, []Preference{{"n2", weightDisk}}},
	{rowNowhere, "a folder whose name begins as that of another", func(w *World) {
		w.Waiting[0].Form = form("s3://m/ab")
		w.stores(1, launcherapi.Model{URI: "s3://m/a", Revision: "1"})
	}, nil},
	{rowOnDisk, "the revision in its name wins", func(w *World) {
		w.Waiting[0].Form = form("hf://org/llama@v1", "--revision", "v2")
		w.stores(1, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"v1"}, Revision: "c1"})
	}, []Preference{{"n2", weightDisk}}},
}

func TestEachRowOfTheTableIsWhatIsDecided(t *testing.T) {
	shown := map[string]bool{}
	for _, tt := range rows {
		t.Run(tt.row+" "+tt.what, func(t *testing.T) {
			w := world()
			tt.change(w)
			all := Decide(w)
			require.Len(t, all, 1)
			assert.Equal(t, tt.row, all[0].Row, all[0].Why)
			assert.NotEmpty(t, all[0].Why)
			if tt.row == rowNowhere { // which nodes it prefers then has a test of its own
				for _, p := range all[0].Prefer {
					assert.EqualValues(t, weightAwake, p.Weight)
				}
			} else {
				assert.Equal(t, tt.prefer, all[0].Prefer)
			}
			assert.Equal(t, tt.row == rowAsleep, all[0].Sleeper != Sleeper{})
			assert.Equal(t, tt.row == rowNotHeard || tt.row == rowLacks, all[0].Wait.After(now))
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

func TestARequesterWhoseModelIsNearNowhereLeavesWhatSleepsToOthers(t *testing.T) {
	w := world()
	assert.Nil(t, Decide(w)[0].Prefer, "nothing sleeps anywhere")
	w.sleeps(0, form("org/other"), 0)
	prefers := func(what string, nodes ...Preference) {
		t.Helper()
		assert.Equal(t, nodes, Decide(w)[0].Prefer, what)
	}
	prefers("of equal nodes", Preference{"n2", weightAwake}, Preference{"n3", weightAwake})
	w.Taken["n2"] = map[string]bool{gpu("n2"): true}
	prefers("first those whose GPUs are not taken", Preference{"n3", weightAwake}, Preference{"n2", weightAwake})
	w.Nodes["n3"].Spec.Unschedulable = true
	prefers("none that is closed", Preference{"n2", weightAwake})
	w.Launchers[1].Instances = nil
	assert.Nil(t, Decide(w)[0].Prefer, "none that has not been heard")
	w.Launchers[1].Instances = map[string]launcherapi.Instance{}
	w.sleeps(1, form("org/third"), 0)
	assert.Nil(t, Decide(w)[0].Prefer, "none where something sleeps")
}

func TestARequesterIsToldWhereItsModelIsThoughItMayNotGoThere(t *testing.T) {
	w := world()
	assert.Equal(t, "its model is near on no node", Decide(w)[0].Why)
	w.sleeps(1, w.Waiting[0].Form, 0)
	w.stores(2, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
	w.Waiting[0].Spec.NodeSelector = map[string]string{"zone": "b"}
	w.cached("hf://org/llama", v1alpha1.SchedulingRequire)
	assert.Equal(t, "its model is near on node n2, to which it may not go; ClusterModelCache c says scheduling: Require", Decide(w)[0].Why)
}

func TestRequestersWhoseModelIsNearNowherePreferDifferentNodes(t *testing.T) {
	w := world()
	w.sleeps(0, form("org/other"), 0)
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

func TestOneSleeperIsPromisedToOneRequesterTheOldestFirst(t *testing.T) {
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
	assert.Empty(t, w.Promised, "nothing of the world is changed")
}

func TestTwoModelsThatSleepOnOneGPUAreNotBothPromised(t *testing.T) {
	w := world()
	other := w.Waiting[0]
	other.UID, other.Created, other.Form = "r2", now.Add(time.Second), form("org/other")
	w.Waiting = append(w.Waiting, other)
	first := w.sleeps(0, w.Waiting[0].Form, 0)
	w.sleeps(0, other.Form, 0)
	elsewhere := w.sleeps(1, other.Form, time.Hour)
	all := Decide(w)
	assert.Equal(t, []Sleeper{first, elsewhere}, []Sleeper{all[0].Sleeper, all[1].Sleeper})
	w.Promised[first] = true
	w.Waiting = w.Waiting[1:]
	assert.Equal(t, elsewhere, Decide(w)[0].Sleeper, "also by an earlier promise")
}

func TestOfTwoRequestersOfOneModelThatLackingMountsKeepAwayOneIsPlacedWhereItSleeps(t *testing.T) {
	w := world()
	asleep := w.sleeps(1, w.Waiting[0].Form, 0)
	w.sleeps(2, form("org/other"), 0)
	w.claimed("hf://org/llama", "models", 0)
	other := w.Waiting[0]
	other.UID = "r2"
	other.Form.Mounts = []nominal.Mount{{Field: "f", Path: "/data", Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, age := range []time.Duration{time.Second, -time.Second} { // whichever is decided first
		other.Created = now.Add(age)
		w.Waiting = []Requester{w.Waiting[0], other}
		got := map[types.UID]Decision{}
		for _, d := range Decide(w) {
			got[d.UID] = d
		}
		assert.Equal(t, asleep, got["r1"].Sleeper)
		assert.Equal(t, rowNowhere, got["r2"].Row)
		assert.Empty(t, got["r2"].Prefer, "no launcher gives what it needs mounted")
	}
}

func TestADemandIsAddedToEachAlternativeOfAPod(t *testing.T) {
	var spec corev1.PodSpec
	demand(&spec, "")
	assert.Nil(t, spec.Affinity)
	demand(&spec, "l")
	ours := corev1.NodeSelectorRequirement{Key: "l", Operator: corev1.NodeSelectorOpIn, Values: []string{"ready"}}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{ours}}}, required.NodeSelectorTerms)
	other := func(key string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
	}
	required.NodeSelectorTerms = []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{other("a")}}, {MatchFields: []corev1.NodeSelectorRequirement{other("metadata.name")}}, {},
	}
	demand(&spec, "l")
	assert.Equal(t, []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{other("a"), ours}},
		{MatchFields: []corev1.NodeSelectorRequirement{other("metadata.name")}, MatchExpressions: []corev1.NodeSelectorRequirement{ours}},
		{},
	}, required.NodeSelectorTerms, "an empty alternative fits nothing, and may not be changed")
}

func TestNotMoreThanSomeNodesOfAKindAreNamed(t *testing.T) {
	w := world()
	for n := range 50 {
		l := w.Launchers[0]
		l.UID, l.Node, l.Models = types.UID(fmt.Sprint("x", n)), fmt.Sprint("x", n), map[string]nodeview.Model{}
		l.Instances = map[string]launcherapi.Instance{}
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

// BenchmarkDecide decides for one requester at 1,000 nodes with 8 sleepers each, and so
// many models in their stores.
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
		stored[id] = nodeview.Kept(launcherapi.Model{ID: id, URI: fmt.Sprint("hf://org/model-", m), Refs: []string{"main"}, Revision: fmt.Sprintf("%040x", m), State: launcherapi.ModelReady})
	}
	for n := range 1000 {
		l := Launcher{
			UID: types.UID(fmt.Sprint("l", n)), Namespace: "ns", Node: fmt.Sprint("n", n), Config: "pool", Spec: &spec, Runs: true,
			Instances: map[string]launcherapi.Instance{}, Models: map[string]nodeview.Model{},
		}
		for g := range 8 {
			i := launcherapi.Instance{State: string(launcher.Sleeping)}
			i.GPUUUIDs = []string{fmt.Sprintf("GPU-%d-%d", n, g)}
			i.InstanceID = nameOf(form(fmt.Sprint("org/model-", (n+g)%100)), i.GPUUUIDs)
			l.Instances[i.InstanceID] = i
		}
		maps.Copy(l.Models, stored)
		w.Launchers = append(w.Launchers, l)
		w.Nodes[l.Node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Node}}
	}
	w.Waiting[0].Form = form("org/model-7")
	w.Called = func(modelref.Name) []string { return []string{fmt.Sprintf("%032x", 7)} }
	for b.Loop() {
		if d := Decide(w)[0]; d.Row != rowAsleep {
			b.Fatal(d)
		}
	}
}

func TestOfSeveralNodesWithAModelTheReasonNamesOneAndCountsTheOthers(t *testing.T) {
	w := world()
	for on, says := range []string{"its model is on the disk of node n1", "its model is on the disk of node n1 and 1 more", "its model is on the disk of node n1 and 2 more"} {
		w.stores(on, launcherapi.Model{URI: "hf://org/llama", Refs: []string{"main"}})
		assert.Equal(t, says, Decide(w)[0].Why)
	}
}
