package modelcache

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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const commit = "0123456789abcdef0123456789abcdef01234567"

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// world returns a World with two nodes of a group, a launcher on each, and a cache whose
// version is known.
func world() *World {
	return &World{
		Now: now,
		Caches: []v1alpha1.ClusterModelCache{{
			ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "u1", Generation: 1},
			Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: "hf://org/llama"}, NodeGroups: []string{"gpu"}},
			Status:     v1alpha1.ClusterModelCacheStatus{Revision: commit},
		}},
		Groups: map[string]*v1alpha1.ModelCacheNodeGroup{"gpu": {
			ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/models", NodeSelector: map[string]string{"gpu": "yes"}},
		}},
		Nodes: map[string]Node{"n1": {Labels: map[string]string{"gpu": "yes"}}, "n2": {Labels: map[string]string{"gpu": "yes"}}, "cpu": {}},
		Launchers: []Launcher{
			{UID: "l1", Name: "launcher-1", Node: "n1", Group: "gpu", Path: "/models", Models: map[string]nodeview.Model{}},
			{UID: "l2", Name: "launcher-2", Node: "n2", Group: "gpu", Path: "/models", Models: map[string]nodeview.Model{}},
		},
		Answers: map[Call]Answer{},
	}
}

const holder = "ClusterModelCache/llama/u1"

// has adds a model to the store of a launcher.
func (w *World) has(launcher int, m launcherapi.Model) {
	if m.ID == "" {
		m.ID = "id"
	}
	if m.WantedBy == nil {
		m.WantedBy = []string{holder}
	}
	w.Launchers[launcher].Models[m.ID] = nodeview.NewModel(m)
}

func (w *World) delete() {
	t := metav1.NewTime(now)
	w.Caches[0].DeletionTimestamp = &t
}

// gated makes the cache name a Secret with these keys and values. Without any the Secret
// does not exist.
func (w *World) gated(data ...string) {
	c := &w.Caches[0]
	c.Spec.Credentials = &v1alpha1.ModelCredentials{SecretRef: &v1alpha1.SecretReference{Name: "hub"}}
	secret := sourcesecret.Secret{Name: "hub", Data: fetchapi.Credentials{}}
	for n := 0; n < len(data); n += 2 {
		secret.Version, secret.Data[data[n]] = "1", data[n+1]
	}
	w.Found = map[string]sourcesecret.Found{c.Name: {Named: namedBy(c, "hotseat-system"), Secrets: []sourcesecret.Secret{secret}}}
}

func one[T any](v T) *T { return &v }

// row is an example of a row of the table: the report on the first node, and the calls to
// its launcher.
type row struct {
	make  func(w *World)
	state v1alpha1.ModelNodeState // empty: the report does not have the node
	why   string
	asked []Call
	clean bool // the object may go
}

var (
	fetch1 = Call{Launcher: "l1", Holder: holder}
	drop1  = Call{Launcher: "l1", Holder: holder, Remove: "id"}
)

var rows = map[string][]row{
	"no launcher": {{make: func(w *World) { w.Launchers = w.Launchers[1:] }, state: v1alpha1.ModelNodeWaiting, why: "no launcher of node group gpu is on it"}},
	"silent launcher": {{
		make: func(w *World) { w.Launchers[0].Models, w.Launchers[0].Why = nil, "connection refused" }, state: v1alpha1.ModelNodeWaiting, why: "launcher-1 does not answer: connection refused",
	}},
	"whole": {
		{make: func(w *World) { w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Revision: commit}) }, state: v1alpha1.ModelNodeReady},
		{make: func(w *World) { // the source has one version at a time
			w.Caches[0].Spec.Source.URI, w.Caches[0].Status.Revision = "https://host/llama", "etag"
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Revision: "another etag"})
		}, state: v1alpha1.ModelNodeReady},
		{make: func(w *World) { w.has(0, launcherapi.Model{State: launcherapi.ModelReady}) }, state: v1alpha1.ModelNodeReady},
		{make: func(w *World) { w.gated(); w.has(0, launcherapi.Model{State: launcherapi.ModelReady}) }, state: v1alpha1.ModelNodeReady},
	},
	"wrong digest": {{
		make: func(w *World) {
			w.Caches[0].Spec.ExpectedDigest = "sha256:a"
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Digest: "sha256:b"})
		}, state: v1alpha1.ModelNodeFailed, why: "it has the digest sha256:b, but spec.expectedDigest is sha256:a",
	}},
	"settings changed": {
		{make: func(w *World) {
			w.Caches[0].Spec.Retention = v1alpha1.RetentionLRU
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the hub is away"}
		}, state: v1alpha1.ModelNodeReady, why: "its retention could not be changed: the hub is away"},
		{make: func(w *World) {
			w.gated()
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady, why: "its retention and who may read it could not be changed: there is no Secret"},
		{make: func(w *World) {
			w.Caches[0].Spec.Warm = v1alpha1.WarmPageCache
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, WarmBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.Caches[0].Spec.Warm = v1alpha1.WarmPageCache
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, WarmBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady},
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.Caches[0].Spec.Credentials.Shared = true
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, PrivateBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, PrivateBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady},
		{make: func(w *World) {
			w.Caches[0].Spec.Retention = v1alpha1.RetentionLRU
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
		}, state: v1alpha1.ModelNodeReady},
	},
	"damaged copy in the way": {
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: "earlier"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, why: "the model takes 2 GiB", asked: []Call{drop1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Revision: "later"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, why: "the model takes 2 GiB", asked: []Call{drop1}},
		{make: func(w *World) { // the back-off of the fetch is over
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: "earlier"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-10 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, why: "the model takes 2 GiB", asked: []Call{drop1}},
		{make: func(w *World) { // the launcher does not know what version the source has
			w.Caches[0].Spec.Source.URI, w.Caches[0].Status.Revision = "https://host/llama", "etag"
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: "etag"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, asked: []Call{drop1}},
		{make: func(w *World) { // the launcher was called to drop it
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: "earlier"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-10 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
			w.Answers[drop1] = Answer{Running: true}
		}, state: v1alpha1.ModelNodeFailed},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: "earlier", InUseBy: []string{"instance a"}})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, why: "the model takes 2 GiB"},
		{make: func(w *World) { // its other files are not fetched again
			w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged, Revision: commit})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the model takes 2 GiB", Cause: "CapacityExceeded"}
		}, state: v1alpha1.ModelNodeFailed, why: "the model takes 2 GiB"},
	},
	"downloading": {{make: func(w *World) {
		w.has(0, launcherapi.Model{State: launcherapi.ModelDownloading, Bytes: 200, FetchedBytes: 50})
	}, state: v1alpha1.ModelNodeDownloading}},
	"call pending": {
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.Answers[fetch1] = Answer{Running: true, RequestHash: "that of others"}
		}, state: v1alpha1.ModelNodeWaiting, why: "launcher launcher-1 is asking the source"},
		{make: func(w *World) { w.Answers[fetch1] = Answer{Running: true} }, state: v1alpha1.ModelNodeWaiting, why: "launcher launcher-1 is asking the source"},
		{make: func(w *World) { w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second)} }, state: v1alpha1.ModelNodeWaiting, why: "launcher launcher-1 is asking the source"},
		{make: func(w *World) { // it was called with another token; the state may be of an earlier try
			w.gated("HF_TOKEN", "t")
			w.has(0, launcherapi.Model{State: launcherapi.ModelFailed, Reason: "no", Cause: "AccessDenied"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), RequestHash: "that of others"}
		}, state: v1alpha1.ModelNodeFailed, why: "no; the credentials are those of Secret hotseat-system/hub"},
		{make: func(w *World) { // the fetch failed after the answer
			w.has(0, launcherapi.Model{State: launcherapi.ModelFailed, Reason: "it has the digest sha256:b", Cause: "IntegrityMismatch"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second)}
		}, state: v1alpha1.ModelNodeFailed, why: "it has the digest sha256:b"},
		{make: func(w *World) { // a retry is running
			w.Answers[fetch1] = Answer{Running: true, AnsweredAt: now.Add(-time.Minute), Tries: 1, Err: "it does not answer"}
		}, state: v1alpha1.ModelNodeFailed, why: "it does not answer"},
	},
	"no credentials": {
		{make: func(w *World) { w.gated() }, state: v1alpha1.ModelNodeWaiting, why: "there is no Secret hotseat-system/hub, which spec.credentials.secretRef names: create it"},
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t", "HF_TOKN", "t")
		}, state: v1alpha1.ModelNodeWaiting, why: `the keys of Secret hotseat-system/hub cannot be used: "HF_TOKN" is not known: hf:// takes HF_TOKEN`},
		{make: func(w *World) { w.gated("AWS_REGION", "eu") }, state: v1alpha1.ModelNodeWaiting, why: "there are no credentials for hf://, which takes HF_TOKEN"},
		{make: func(w *World) {
			w.gated()
			w.Found["llama"] = sourcesecret.Found{Named: w.Found["llama"].Named, Unread: "cannot read Secret hotseat-system/hub: forbidden"}
		}, state: v1alpha1.ModelNodeWaiting, why: "cannot read Secret hotseat-system/hub: forbidden"},
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.Launchers[0].Plain = true
		}, state: v1alpha1.ModelNodeWaiting, why: "launcher launcher-1 gets no credentials because it is called without TLS"},
		{make: func(w *World) { // an earlier refusal does not count
			w.gated()
			w.Answers[fetch1] = Answer{AnsweredAt: now, Tries: 1, Err: "no", Cause: "AccessDenied"}
		}, state: v1alpha1.ModelNodeWaiting, why: "there is no Secret"},
	},
	"failed": {
		{make: func(w *World) {
			w.gated("HF_TOKEN", "t")
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the source refuses access", Cause: "AccessDenied", RequestHash: requestHash(fetchapi.Credentials{"HF_TOKEN": "t"}, &v1alpha1.ClusterModelCache{})}
		}, state: v1alpha1.ModelNodeFailed, why: "the source refuses access; the credentials are those of Secret hotseat-system/hub"},
		{make: func(w *World) {
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "the source refuses access", Cause: "AccessDenied"}
		}, state: v1alpha1.ModelNodeFailed, why: "name a Secret with credentials in spec.credentials.secretRef"},
		{make: func(w *World) {
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-9 * time.Second), Tries: 1, Err: "no room"}
		}, state: v1alpha1.ModelNodeFailed, why: "no room"},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelFailed, Reason: "it was cut off"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-4 * time.Minute), Tries: 9, Err: "x"}
		}, state: v1alpha1.ModelNodeFailed, why: "it was cut off"},
	},
	"source unknown": {
		{make: func(w *World) {
			w.Caches[0].Status.Revision = ""
			w.Answers[Call{Launcher: "l2", Holder: holder}] = Answer{Running: true}
		}, state: v1alpha1.ModelNodeWaiting, why: "another node is asking the source"},
		{make: func(w *World) {
			w.Caches[0].Status.Revision = ""
			w.Answers[Call{Launcher: "l2", Holder: holder}] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 1, Err: "there is no such model"}
		}, state: v1alpha1.ModelNodeWaiting, why: "the source could not be asked: there is no such model"},
	},
	"busy node": {{make: func(w *World) {
		w.has(0, launcherapi.Model{ID: "other", URI: "hf://org/other", State: launcherapi.ModelDownloading, WantedBy: []string{"somebody"}})
	}, state: v1alpha1.ModelNodeWaiting, why: "it fetches hf://org/other first"}, {make: func(w *World) {
		w.Answers[Call{Launcher: "l1", Holder: "ClusterModelCache/other/u2"}] = Answer{AnsweredAt: now.Add(-time.Second), Model: launcherapi.Model{URI: "hf://org/other"}}
	}, state: v1alpha1.ModelNodeWaiting, why: "it fetches hf://org/other first"}, {make: func(w *World) {
		w.Answers[Call{Launcher: "l1", Holder: "ClusterModelCache/other/u2"}] = Answer{Running: true, CalledAt: now.Add(1 - sourceWait)}
	}, state: v1alpha1.ModelNodeWaiting, why: "its launcher asks the source of ClusterModelCache other first"}, {make: func(w *World) {
		w.Launchers = append(w.Launchers, Launcher{UID: "l3", Name: "launcher-3", Node: "n1", Group: "gpu", Path: "/models", Lost: now.Add(1 - watchDelay)})
	}, state: v1alpha1.ModelNodeWaiting, why: "launcher launcher-3 fell silent less than 10 s ago and may be fetching"}},
	"too many nodes": {
		{make: func(w *World) {
			w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
			w.has(1, launcherapi.Model{State: launcherapi.ModelDownloading})
		}, state: v1alpha1.ModelNodeWaiting, why: "1 of the nodes of group gpu are fetching"},
		{make: func(w *World) { // the silent launcher of the other node may be fetching
			w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
			w.Launchers[1].Models, w.Launchers[1].Lost = nil, now.Add(1-watchDelay)
		}, state: v1alpha1.ModelNodeWaiting, why: "1 of the nodes of group gpu are fetching"},
		{make: func(w *World) { // the silent launcher shares its folder with another one
			w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
			w.Launchers = append(w.Launchers, Launcher{UID: "l3", Name: "launcher-3", Node: "n2", Group: "gpu", Path: "/models", Lost: now.Add(1 - watchDelay)})
		}, state: v1alpha1.ModelNodeWaiting, why: "1 of the nodes of group gpu are fetching"},
		{make: func(w *World) { // the limit of another group of the node
			w.Groups["narrow"] = w.Groups["gpu"].DeepCopy()
			w.Groups["narrow"].Spec.MaxConcurrentNodes = one[int32](1)
			w.has(1, launcherapi.Model{State: launcherapi.ModelDownloading})
		}, state: v1alpha1.ModelNodeWaiting, why: "1 of the nodes of group narrow are fetching"},
	},
	"too many calls": {{make: func(w *World) {
		for n := range maxCalls {
			w.Answers[Call{Launcher: "l2", Holder: string(rune('a' + n))}] = Answer{Running: true}
		}
	}, state: v1alpha1.ModelNodeWaiting, why: "too many calls to launchers are running"}},
	"fetch": {
		{make: func(w *World) { w.gated("HF_TOKEN", "t") }, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}, why: "is asking the source"},
		{make: func(w *World) { // another token was refused
			w.gated("HF_TOKEN", "t")
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 9, Err: "no", Cause: "AccessDenied", RequestHash: requestHash(fetchapi.Credentials{"HF_TOKEN": "before"}, &w.Caches[0])}
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { // the fetch with another token failed
			w.gated("HF_TOKEN", "t")
			w.has(0, launcherapi.Model{State: launcherapi.ModelFailed, Reason: "no", Cause: "AccessDenied"})
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-watchDelay), RequestHash: "that of others"}
		}, state: v1alpha1.ModelNodeFailed, asked: []Call{fetch1}},
		{make: func(w *World) { // the cache names no Secret any more
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 1, Err: "no", RequestHash: "that of a Secret"}
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(*World) {}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}, why: "is asking the source"},
		{make: func(w *World) { w.has(0, launcherapi.Model{State: launcherapi.ModelPartial}) }, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { w.has(0, launcherapi.Model{State: launcherapi.ModelDamaged}) }, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { // two nodes have asked the source, and the other's answer counts
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, Revision: "later"})
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady, WantedBy: []string{"another holder"}})
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-10 * time.Second), Tries: 1, Err: "no room"}
		}, state: v1alpha1.ModelNodeFailed, why: "no room", asked: []Call{fetch1}},
		{make: func(w *World) {
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-5 * time.Minute), Tries: 99, Err: "no room"}
		}, state: v1alpha1.ModelNodeFailed, asked: []Call{fetch1}},
		{make: func(w *World) {
			w.has(0, launcherapi.Model{State: launcherapi.ModelFailed, Reason: "cut off"})
		}, state: v1alpha1.ModelNodeFailed, why: "cut off", asked: []Call{fetch1}},
		{make: func(w *World) { // the launcher of the other node has been silent for long
			w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
			w.Launchers[1].Models, w.Launchers[1].Lost = nil, now.Add(-watchDelay)
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { w.Caches[0].Status.Revision = "" }, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { // a whole copy gives the version
			w.Caches[0].Status.Revision = ""
			w.has(1, launcherapi.Model{State: launcherapi.ModelReady, Revision: commit})
		}, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
		{make: func(w *World) { w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Minute)} }, state: v1alpha1.ModelNodeWaiting, asked: []Call{fetch1}},
	},
	"group missing": {{make: func(w *World) {
		delete(w.Groups, "gpu")
		w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
	}}},
	"in use": {{make: func(w *World) {
		w.delete()
		w.has(0, launcherapi.Model{State: launcherapi.ModelReady, InUseBy: []string{"instance a"}})
	}, state: v1alpha1.ModelNodeRemoving, why: "it is in use by instance a"}},
	"drop": {
		{make: func(w *World) { w.delete(); w.has(0, launcherapi.Model{State: launcherapi.ModelReady}) }, state: v1alpha1.ModelNodeRemoving, asked: []Call{drop1}},
		{make: func(w *World) {
			w.Caches[0].Spec.NodeGroups = []string{"empty"}
			w.Groups["empty"] = &v1alpha1.ModelCacheNodeGroup{Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/other"}}
			w.has(0, launcherapi.Model{State: launcherapi.ModelDownloading})
		}, state: v1alpha1.ModelNodeRemoving, asked: []Call{drop1}},
		{make: func(w *World) {
			w.Nodes["n1"] = Node{} // the node left the group
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
		}, state: v1alpha1.ModelNodeRemoving, asked: []Call{drop1}},
		{make: func(w *World) {
			w.delete()
			w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
			w.Answers[drop1] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 1, Err: "the disk does not answer"}
		}, state: v1alpha1.ModelNodeRemoving, why: "the disk does not answer"},
		{make: func(w *World) { w.delete(); w.Answers[fetch1] = Answer{Running: true} }}, // a fetch may still begin
		{make: func(w *World) { // a fetch may still begin, even though the Secret is gone
			w.gated()
			w.delete()
			w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), RequestHash: "that of the Secret"}
		}},
		{make: (*World).delete, clean: true},
	},
	"silent launcher of a deleted cache": {
		{make: func(w *World) { w.delete(); w.Launchers[0].Models = nil }, state: v1alpha1.ModelNodeRemoving, why: "launcher launcher-1 does not answer"},
		{make: func(w *World) { w.delete(); w.Launchers[0].Models, w.Nodes["n1"] = nil, Node{Down: true} }, clean: true},
		{make: func(w *World) { w.delete(); w.Launchers[0].Models = nil; delete(w.Nodes, "n1") }, clean: true},
		{make: func(w *World) { w.delete(); w.Launchers[0].Models, w.Launchers[0].Group = nil, "another" }, clean: true},
	},
	"orphaned model": {{make: func(w *World) {
		w.has(0, launcherapi.Model{State: launcherapi.ModelReady, WantedBy: []string{"ClusterModelCache/llama/earlier", "somebody"}})
		w.has(0, launcherapi.Model{ID: "now", State: launcherapi.ModelReady})
	}, state: v1alpha1.ModelNodeReady, asked: []Call{{Launcher: "l1", Holder: "ClusterModelCache/llama/earlier", Remove: "id"}}}},
}

func TestEachRowOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/modelcache.md")
	require.NoError(t, err)
	var named []string
	for _, line := range regexp.MustCompile(`(?m)^\| ([a-z][^|]*) \|`).FindAllStringSubmatch(string(text), -1) {
		if line[1] != "row" {
			named = append(named, line[1])
		}
	}
	require.ElementsMatch(t, named, slices.Collect(maps.Keys(rows)), "each row of spec/modelcache.md needs an example")
	for name, examples := range rows {
		for _, r := range examples {
			w := world()
			r.make(w)
			plan := Decide(w)
			report := plan.Reports["llama"]
			var state v1alpha1.ModelNodeState
			var why string
			for _, n := range report.Nodes {
				if n.Node == "n1" {
					state, why = n.State, n.Why
				}
			}
			assert.Equal(t, r.state, state, "%s: %s", name, why)
			assert.Contains(t, why, r.why, name)
			var asked []Call
			for _, c := range plan.Calls {
				if c.Launcher == "l1" {
					asked = append(asked, c)
				}
			}
			assert.Equal(t, r.asked, asked, name)
			assert.Equal(t, r.clean, report.NothingLeft, name)
		}
	}
}

func TestAllNodesFetchTheSameCommit(t *testing.T) {
	w := world()
	assert.Equal(t, PullRequest{URI: "hf://org/llama@" + commit, Ref: "main"}, Decide(w).Pulls[holder])
	w.Caches[0].Spec.Source.Revision = "v1"
	assert.Equal(t, PullRequest{URI: "hf://org/llama@" + commit, Ref: "v1"}, Decide(w).Pulls[holder])
	w.Caches[0].Status.Revision = ""
	assert.Equal(t, PullRequest{URI: "hf://org/llama@v1"}, Decide(w).Pulls[holder])
	w.Caches[0].Spec.Source = v1alpha1.ModelSource{URI: "https://host/model"}
	plan := Decide(w)
	assert.Equal(t, PullRequest{URI: "https://host/model"}, plan.Pulls[holder])
	assert.Len(t, plan.Calls, 2, "all launchers ask a source without revisions")
}

func TestAnotherVersionIsNotReported(t *testing.T) {
	w := world()
	w.has(0, launcherapi.Model{ID: "two", State: launcherapi.ModelReady, Revision: "later", Digest: "sha256:b", Bytes: 2})
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Minute), Model: launcherapi.Model{ID: "two", Revision: "later", Digest: "sha256:b", Bytes: 2}}
	w.has(1, launcherapi.Model{ID: "one", State: launcherapi.ModelReady, Revision: commit, Digest: "sha256:a", Bytes: 1})
	r := Decide(w).Reports["llama"]
	assert.Equal(t, []any{commit, "one", "sha256:a", int64(1)}, []any{r.Revision, r.ID, r.Digest, r.Bytes})
	assert.Equal(t, launcherapi.ModelReady, w.Launchers[0].Models["two"].State, "the input stays as it is")
}

func TestRequestNamesAnUnusualRetentionOnly(t *testing.T) {
	w := world()
	assert.Empty(t, Decide(w).Pulls[holder].Retention)
	w.has(1, launcherapi.Model{State: launcherapi.ModelReady, LRUBy: []string{holder}})
	assert.Equal(t, "keep", Decide(w).Pulls[holder].Retention)
	w.Caches[0].Spec.Retention = v1alpha1.RetentionLRU
	assert.Equal(t, "lru", Decide(w).Pulls[holder].Retention)
}

func TestRequestAsksForTheWarmUp(t *testing.T) {
	w := world()
	assert.False(t, Decide(w).Pulls[holder].Warm)
	w.Caches[0].Spec.Warm = v1alpha1.WarmPageCache
	assert.True(t, Decide(w).Pulls[holder].Warm)
	w.Caches[0].Spec.Warm = v1alpha1.WarmNone
	assert.False(t, Decide(w).Pulls[holder].Warm)
}

func TestRequestNamesTheExpectedSizeAndDigest(t *testing.T) {
	w := world()
	assert.Empty(t, Decide(w).Pulls[holder].RequestHash)
	size := resource.MustParse("15Gi")
	w.Caches[0].Spec.Size, w.Caches[0].Spec.ExpectedDigest = &size, "sha256:a"
	asked := Decide(w).Pulls[holder]
	assert.EqualValues(t, 15<<30, asked.ExpectedBytes)
	assert.Equal(t, "sha256:a", asked.ExpectedDigest)
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 1, Err: "it has 1 byte, and 16106127360 were declared", Cause: "IntegrityMismatch", RequestHash: asked.RequestHash}
	assert.NotContains(t, Decide(w).Calls, fetch1, "it is retried after a pause")
	size = resource.MustParse("1")
	assert.Contains(t, Decide(w).Calls, fetch1, "it is retried at once with another size")
}

func TestNodeGroupCountsAsAListOfOne(t *testing.T) {
	w := world()
	several := Decide(w)
	w.Caches[0].Spec.NodeGroup, w.Caches[0].Spec.NodeGroups = "gpu", nil
	assert.Equal(t, several, Decide(w))
}

func TestRequestSaysWhetherTheModelIsPrivate(t *testing.T) {
	w := world()
	assert.False(t, Decide(w).Pulls[holder].Private)
	w.gated("HF_TOKEN", "t")
	assert.True(t, Decide(w).Pulls[holder].Private)
	w.Caches[0].Spec.Credentials.Shared = true
	assert.False(t, Decide(w).Pulls[holder].Private)
}

func TestMaxConcurrentNodesBoundsTheFetches(t *testing.T) {
	w := world()
	w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
	assert.Equal(t, []Call{fetch1}, Decide(w).Calls)
	other := w.Caches[0]
	other.Name, other.UID, other.Spec.Source.URI = "other", types.UID("u2"), "hf://org/other"
	w.Caches = append(w.Caches, other)
	w.Groups["gpu"].Spec.MaxConcurrentNodes = nil
	assert.Len(t, Decide(w).Calls, 2, "each node fetches one model at a time")
}

func TestSlowSourceDelaysOtherModelsBriefly(t *testing.T) {
	w := world()
	w.Groups["gpu"].Spec.MaxConcurrentNodes = one[int32](1)
	dead := w.Caches[0]
	dead.Name, dead.UID, dead.Spec.Source.URI = "dead", types.UID("u2"), "https://dead/model"
	w.Caches = append([]v1alpha1.ClusterModelCache{dead}, w.Caches...)
	ask := Call{Launcher: "l1", Holder: Holder(&dead)}
	plan := Decide(w)
	assert.Equal(t, []Call{ask}, plan.Calls)
	assert.Equal(t, "its launcher asks the source of ClusterModelCache dead first", plan.Reports["llama"].Nodes[0].Why)
	assert.Equal(t, now.Add(sourceWait), plan.Again, "nothing else tells that a source does not answer")

	w.Answers[ask] = Answer{Running: true, CalledAt: now}
	w.Now = now.Add(sourceWait - 1)
	assert.Empty(t, Decide(w).Calls)
	w.Now = now.Add(sourceWait)
	plan = Decide(w)
	assert.Equal(t, []Call{fetch1}, plan.Calls)
	assert.Contains(t, plan.Reports["llama"].Nodes[1].Why, "1 of the nodes of group gpu are fetching", "a node that asks is one of those that fetch, and one alone")

	w.has(1, launcherapi.Model{ID: "third", State: launcherapi.ModelDownloading, WantedBy: []string{"somebody"}})
	assert.Empty(t, Decide(w).Calls, "as many other nodes fetch as may")
	delete(w.Launchers[1].Models, "third")

	w.Answers[fetch1] = Answer{Running: true, CalledAt: now}
	third := w.Caches[1]
	third.Name, third.UID = "third", types.UID("u3")
	w.Caches = append(w.Caches, third)
	w.has(0, launcherapi.Model{URI: "hf://org/llama", State: launcherapi.ModelDownloading})
	plan = Decide(w)
	assert.Empty(t, plan.Calls)
	assert.Equal(t, "it fetches hf://org/llama first", plan.Reports["third"].Nodes[0].Why)
}

func TestAnotherNodeAsksTheSourceAfterAFailure(t *testing.T) {
	w := world()
	w.Caches[0].Status.Revision = ""
	assert.Equal(t, []Call{fetch1}, Decide(w).Calls)
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Minute), Tries: 1, Err: "unreachable", Cause: "Unavailable"}
	plan := Decide(w)
	assert.Equal(t, []Call{{Launcher: "l2", Holder: holder}}, plan.Calls)
	assert.Equal(t, "unreachable", plan.Reports["llama"].Source)
	w.Answers[fetch1] = Answer{AnsweredAt: now.Add(-time.Second), Tries: 1, Err: "unreachable"}
	plan = Decide(w)
	assert.Empty(t, plan.Calls)
	assert.Equal(t, now.Add(9*time.Second), plan.Again, "the next try is scheduled")
}

func TestLaunchersWithOneFolderShareAStore(t *testing.T) {
	w := world()
	w.Launchers = append(w.Launchers, Launcher{UID: "l0", Name: "older", Node: "n1", Group: "other", Path: "/models", Created: now.Add(-time.Hour), Models: map[string]nodeview.Model{}})
	w.Launchers[0].Created = now
	calls := Decide(w).Calls
	assert.Equal(t, []Call{{Launcher: "l0", Holder: holder}, {Launcher: "l2", Holder: holder}}, calls, "the oldest launcher is called")
	w.Launchers[2].Models = nil
	assert.Contains(t, Decide(w).Calls, fetch1, "another one is called when it does not answer")
	w.Launchers[2].Models = map[string]nodeview.Model{"id": nodeview.NewModel(launcherapi.Model{ID: "id", State: launcherapi.ModelPartial, WantedBy: []string{holder}})}
	w.has(0, launcherapi.Model{State: launcherapi.ModelDownloading})
	plan := Decide(w)
	assert.Equal(t, v1alpha1.ModelNodeDownloading, plan.Reports["llama"].Nodes[0].State, "the launcher that fetches is called")
	assert.Equal(t, []Call{{Launcher: "l2", Holder: holder}}, plan.Calls)
}

func TestSilentLauncherIsRecheckedAfterTheWatchDelay(t *testing.T) {
	w := world()
	w.Launchers = w.Launchers[:1]
	w.Launchers[0].Models, w.Launchers[0].Lost = nil, now.Add(-time.Second)
	assert.Equal(t, now.Add(watchDelay-time.Second), Decide(w).Again)
}

func TestFolderThatLacksMoreCountsForTheNode(t *testing.T) {
	for what, c := range map[string]struct {
		first, second launcherapi.Model
		state         v1alpha1.ModelNodeState
		labels        map[string]bool
	}{
		"both are whole":          {launcherapi.Model{State: launcherapi.ModelReady}, launcherapi.Model{State: launcherapi.ModelReady}, v1alpha1.ModelNodeReady, map[string]bool{"llama": true}},
		"the second is not whole": {launcherapi.Model{State: launcherapi.ModelReady}, launcherapi.Model{State: launcherapi.ModelDownloading}, v1alpha1.ModelNodeDownloading, nil},
		"the first is not whole":  {launcherapi.Model{State: launcherapi.ModelFailed}, launcherapi.Model{State: launcherapi.ModelReady}, v1alpha1.ModelNodeFailed, nil},
		"the second is silent":    {launcherapi.Model{State: launcherapi.ModelReady}, launcherapi.Model{}, v1alpha1.ModelNodeWaiting, map[string]bool{"llama": false}},
	} {
		w := world()
		w.Groups["other"] = w.Groups["gpu"].DeepCopy()
		w.Groups["other"].Spec.Path = "/other"
		w.Caches[0].Spec.NodeGroups = []string{"gpu", "other"}
		w.Launchers[1] = Launcher{UID: "l3", Name: "launcher-3", Node: "n1", Group: "other", Path: "/other", Models: map[string]nodeview.Model{}}
		c.first.InUseBy, c.second.InUseBy = []string{"b", "c"}, []string{"a", "c"}
		w.has(0, c.first)
		w.has(1, c.second)
		if c.second.State == "" {
			w.Launchers[1].Models = nil
		}
		plan := Decide(w)
		assert.Equal(t, c.state, plan.Reports["llama"].Nodes[0].State, what)
		assert.Equal(t, c.labels, plan.Labels["n1"], what)
		if c.second.State != "" {
			assert.Equal(t, []string{"a", "b", "c"}, plan.Reports["llama"].Nodes[0].InUseBy, what)
		}
	}
}

func TestGroupWithoutLabelsHasTheNodesOfItsLaunchers(t *testing.T) {
	w := world()
	w.Groups["gpu"].Spec.NodeSelector = nil
	w.Launchers[1].Group = "other"
	report := Decide(w).Reports["llama"]
	require.Len(t, report.Nodes, 1)
	assert.Equal(t, "n1", report.Nodes[0].Node)
}

func TestStatusCountsAllNodesAndListsThoseNotReady(t *testing.T) {
	var report Report
	for n := range 300 {
		node := v1alpha1.ModelNode{Node: fmt.Sprintf("node-%03d", n), State: v1alpha1.ModelNodeReady}
		if n == 250 {
			node.State, node.Why, report.Failures = v1alpha1.ModelNodeFailed, "no room", map[string]failure{node.Node: {"no room", "CapacityExceeded"}}
		}
		report.Nodes = append(report.Nodes, node)
	}
	c := &world().Caches[0]
	report.writeStatus(c)
	assert.EqualValues(t, 300, c.Status.Desired)
	assert.EqualValues(t, 299, c.Status.Ready)
	assert.Equal(t, "299/300", c.Status.Progress)
	assert.Len(t, c.Status.Nodes, v1alpha1.MaxListedNodes)
	assert.EqualValues(t, 100, c.Status.NodesLeftOut)
	assert.True(t, slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.ModelNode) bool { return n.State == v1alpha1.ModelNodeFailed }))
	conditions := map[string]string{}
	for _, c := range c.Status.Conditions {
		conditions[c.Type] = string(c.Status) + " " + c.Reason
	}
	assert.Equal(t, map[string]string{
		"Resolved": "False CapacityExceeded", "Available": "False NotReady", "Progressing": "False Idle",
		"Degraded": "True CapacityExceeded", "CapacityExceeded": "True CapacityExceeded",
	}, conditions)
}

func TestNodesGetTheLabelsOfTheirModels(t *testing.T) {
	w := world()
	w.has(0, launcherapi.Model{State: launcherapi.ModelReady})
	w.has(1, launcherapi.Model{State: launcherapi.ModelDownloading})
	labels := Decide(w).Labels
	assert.Equal(t, map[string]map[string]bool{"n1": {"llama": true}}, labels)

	w.Launchers[0].Models = nil
	labels = Decide(w).Labels
	stays := map[string]map[string]bool{"n1": {"llama": false}}
	assert.Equal(t, stays, labels, "the label stays while the launcher is silent")
	all := w.Launchers
	w.Launchers = w.Launchers[1:]
	assert.Equal(t, stays, Decide(w).Labels, "the label stays while the launcher is replaced")
	w.Launchers = all
	groups := w.Groups
	w.Groups = nil
	assert.Empty(t, Decide(w).Labels, "nodes of a missing group get no label")
	w.Nodes["n1"].Labels[podmeta.ModelLabel("llama")] = podmeta.ModelReady
	assert.Equal(t, stays, Decide(w).Labels, "they keep a label that they have")
	w.Groups = groups
	w.delete()
	assert.Empty(t, Decide(w).Labels)
}

func TestEachReasonOfFailedNodesIsReported(t *testing.T) {
	w := world()
	c := &w.Caches[0]
	w.Answers = map[Call]Answer{
		{Launcher: "l1", Holder: holder}: {AnsweredAt: now, Tries: 1, Err: "the source refuses", Cause: fetchapi.ReasonAccessDenied},
		{Launcher: "l2", Holder: holder}: {AnsweredAt: now, Tries: 1, Err: "it is full", Cause: fetchapi.ReasonCapacityExceeded},
	}
	says := func(kind string) string {
		Decide(w).Reports["llama"].writeStatus(c)
		is := meta.FindStatusCondition(c.Status.Conditions, kind)
		require.NotNil(t, is, kind)
		return is.Reason + " " + is.Message
	}
	assert.Contains(t, says(v1alpha1.ConditionDegraded), "AccessDenied node n1: the source refuses")
	assert.Equal(t, "CapacityExceeded node n2: it is full", says(v1alpha1.ConditionCapacityExceeded))

	c.Status.Revision = "" // the version of the source is unknown
	w.Answers[Call{Launcher: "l1", Holder: holder}], w.Answers[Call{Launcher: "l2", Holder: holder}] = w.Answers[Call{Launcher: "l2", Holder: holder}], w.Answers[Call{Launcher: "l1", Holder: holder}]
	assert.Equal(t, "CapacityExceeded node n1: it is full", says(v1alpha1.ConditionDegraded), "the reason fits the message")
	assert.Contains(t, says(v1alpha1.ConditionResolved), "AccessDenied the source refuses")
}

func TestResolvedSaysWhetherTheSourceWasAsked(t *testing.T) {
	for _, uri := range []string{"https://host/model", "hf://org/llama"} {
		w := world()
		c := &w.Caches[0]
		c.Spec.Source.URI, c.Status.Revision = uri, ""
		says := func(a Answer) string {
			w.Answers[fetch1] = a
			Decide(w).Reports["llama"].writeStatus(c)
			return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionResolved).Reason
		}
		Decide(w).Reports["llama"].writeStatus(c)
		assert.Equal(t, v1alpha1.ReasonNotAsked, meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionResolved).Reason, uri)
		assert.Equal(t, v1alpha1.ReasonAsked, says(Answer{Running: true, CalledAt: now}), uri)
		mute := Answer{AnsweredAt: now, Tries: 1, Err: "it does not answer", Cause: fetchapi.ReasonUnavailable}
		assert.Equal(t, mute.Cause, says(mute), uri)
		mute.Running = true
		assert.Equal(t, mute.Cause, says(mute), "%s: it is being asked again", uri)
		assert.Equal(t, v1alpha1.ReasonFailed, says(Answer{AnsweredAt: now, Tries: 1, Err: "the address is wrong"}), uri)
	}
}

func TestAvailableExplainsWhyNoNodeIsWanted(t *testing.T) {
	says := func(change func(*World)) (reason, message string) {
		w := world()
		change(w)
		c := &w.Caches[0]
		Decide(w).Reports["llama"].writeStatus(c)
		is := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionAvailable)
		return is.Reason, is.Message
	}
	reason, message := says(func(w *World) { w.Groups["gpu"].Spec.NodeSelector["gpu"] = "no" })
	assert.Equal(t, v1alpha1.ReasonNoNodes, reason)
	assert.Contains(t, message, "no node is in the ModelCacheNodeGroups gpu (gpu=no) of spec.nodeGroups: label nodes as a group asks")
	reason, message = says((*World).delete)
	assert.Equal(t, v1alpha1.ReasonRemoving, reason)
	assert.Equal(t, "it is being deleted", message)
}
