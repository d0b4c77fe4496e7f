//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const (
	hubCommit = "0123456789abcdef0123456789abcdef01234567"
	hubCA     = "hub-ca" // ConfigMap and volume
)

// modelSite is a namespace whose launchers keep models of a hub.
type modelSite struct {
	*site
	hub   *hubserver.Hub
	group string
}

// newModelSite makes a hub, a ModelCacheNodeGroup, and a launcher on each node that
// keeps models in a folder of its own.
func newModelSite(t *testing.T, change func(*v1alpha1.ModelCacheNodeGroup)) *modelSite {
	t.Helper()
	s := &modelSite{site: newBareSite(t)}
	s.group = s.ns
	s.hub = s.newHub()
	group := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.group}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/var/lib/hotseat/" + s.ns, Namespaces: []string{s.ns}}}
	if change != nil {
		change(group)
	}
	require.NoError(t, s.api.Create(t.Context(), group))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(s.api.Delete(context.Background(), group)))
	})
	s.addPool(func(config *v1alpha1.LauncherConfig) {
		config.Spec.ModelCache = &v1alpha1.LauncherModelCache{NodeGroup: s.group}
		changeTemplate(t, config, func(container map[string]any) {
			container["env"] = append(container["env"].([]any),
				map[string]any{"name": "HF_ENDPOINT", "value": s.hub.URL}, map[string]any{"name": "SSL_CERT_FILE", "value": "/etc/hub/ca.crt"})
			container["volumeMounts"] = append(container["volumeMounts"].([]any), map[string]any{"name": hubCA, "mountPath": "/etc/hub"})
		})
		changeVolumes(t, config, map[string]any{"name": hubCA, "configMap": map[string]any{"name": hubCA}})
	})
	return s
}

// newHub makes a hub that Pods reach, and a ConfigMap of the namespace by which they trust
// it.
func (s *site) newHub() *hubserver.Hub {
	s.t.Helper()
	control := s.listenAsControl()
	certificate, ca := selfSigned(s.t, control.Addr().(*net.TCPAddr).IP)
	first := control
	hub := hubserver.NewTLS(s.t, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}, func() net.Listener {
		if l := first; l != nil {
			first = nil
			return l
		}
		return s.listenAsControl()
	})
	require.NoError(s.t, s.api.Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: hubCA}, Data: map[string]string{"ca.crt": string(ca)}}))
	return hub
}

func changeVolumes(t *testing.T, config *v1alpha1.LauncherConfig, more ...any) {
	t.Helper()
	var template map[string]any
	require.NoError(t, json.Unmarshal(config.Spec.PodTemplate.Raw, &template))
	spec := template["spec"].(map[string]any)
	spec["volumes"] = append(spec["volumes"].([]any), more...)
	raw, err := json.Marshal(template)
	require.NoError(t, err)
	config.Spec.PodTemplate.Raw = raw
}

func (s *site) listenAsControl() net.Listener {
	s.t.Helper()
	l, err := s.cluster.Listen(s.t.Context())
	require.NoError(s.t, err)
	return l
}

// selfSigned is the certificate of a server at an address, and the same as one that
// clients trust.
func selfSigned(t *testing.T, ip net.IP) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{ip},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// keep makes a ClusterModelCache of a model of the hub, which goes with the test.
func (s *modelSite) keep(name, model string) *v1alpha1.ClusterModelCache {
	s.t.Helper()
	return s.keepBy(name, model, "")
}

// keepBy is keep with what it means for requesters.
func (s *modelSite) keepBy(name, model string, scheduling v1alpha1.ModelScheduling) *v1alpha1.ClusterModelCache {
	s.t.Helper()
	return s.keepThis(&v1alpha1.ClusterModelCache{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: "hf://" + model}, NodeGroups: []string{s.group}, Scheduling: scheduling},
	})
}

// keepThis makes a ClusterModelCache, which goes with the test.
func (s *modelSite) keepThis(c *v1alpha1.ClusterModelCache) *v1alpha1.ClusterModelCache {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), c))
	s.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		err := s.api.Delete(ctx, c)
		if apierrors.IsForbidden(err) { // what the test has left in use ends with its namespace
			s.remove()
			err = s.api.Delete(ctx, c)
		}
		assert.NoError(s.t, client.IgnoreNotFound(err))
		for s.api.Get(ctx, client.ObjectKeyFromObject(c), c) == nil {
			if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionDeletionBlocked) { // it came into use meanwhile
				s.remove()
			}
			time.Sleep(50 * time.Millisecond)
		}
		assert.NoError(s.t, ctx.Err(), "%s is not deleted: %+v", c.Name, c.Status)
	})
	return c
}

// told waits until the status of a cache is so.
func (s *modelSite) told(name, what string, so func(*v1alpha1.ClusterModelCacheStatus) bool) *v1alpha1.ClusterModelCacheStatus {
	s.t.Helper()
	var c v1alpha1.ClusterModelCache
	deadline := time.Now().Add(patience.Wait())
	for {
		require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: name}, &c))
		if so(&c.Status) {
			return &c.Status
		}
		require.True(s.t, time.Now().Before(deadline), "%s: %s: %+v", name, what, c.Status)
		time.Sleep(50 * time.Millisecond)
	}
}

func everywhere(s *v1alpha1.ClusterModelCacheStatus) bool {
	return s.Progress == "2/2" && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAvailable)
}

// modelsOf are the models of the launcher on a node.
func (s *modelSite) modelsOf(node int) []launcherapi.Model {
	s.t.Helper()
	pod, ok := s.poolPods()[cluster.NodeName(node)]
	require.True(s.t, ok)
	list, err := s.launcher(pod.Name).Models(s.t.Context())
	require.NoError(s.t, err)
	return list.Models
}

func TestAModelIsKeptOnEveryNodeOfItsGroupServedFromThereAndRemovedWithItsObject(t *testing.T) {
	s := newModelSite(t, nil)
	s.hub.Put("org/kept", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{
		"config.json": []byte(`{}`), "model.safetensors": bytes.Repeat([]byte("w"), 1<<20),
	}})
	s.allReady()
	c := s.keepThis(&v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.ClusterModelCacheSpec{
		Source: v1alpha1.ModelSource{URI: "hf://org/kept"}, NodeGroups: []string{s.group}, Warm: v1alpha1.WarmPageCache,
	}})
	status := s.told(c.Name, "both nodes have it", everywhere)
	assert.Equal(t, hubCommit, status.Revision)
	assert.EqualValues(t, 1<<20+2, status.SizeBytes)
	for node := range 2 {
		models := s.modelsOf(node + 1)
		require.Len(t, models, 1)
		assert.Equal(t, []string{"main"}, models[0].Refs)
		launcher := s.launcher(s.poolPods()[cluster.NodeName(node+1)].Name)
		s.eventually("its bytes are in main memory", func() bool {
			m, err := launcher.Model(t.Context(), models[0].ID)
			return err == nil && m.PageCacheBytes != nil && *m.PageCacheBytes >= m.Bytes
		})
	}

	s.deploy(server{app: "kept"}, 1) // of model org/kept
	pod := s.served("kept", 1)[0]
	launcher := s.poolPods()[pod.Spec.NodeName]
	i := s.instance(launcher.Name, "kept", "awake")
	assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom, i.ModelWhy)
	s.told(c.Name, "it is in use", func(s *v1alpha1.ClusterModelCacheStatus) bool { return s.InUse == 1 })

	if s.asksBeforeDeletions() {
		refused := func() bool { return apierrors.IsForbidden(s.api.Delete(t.Context(), c, client.DryRunAll)) }
		s.eventually("its deletion would be refused", refused)
		for _, opts := range [][]client.DeleteOption{{client.DryRunAll}, nil} {
			s.refusesDeletion(c, "on node "+pod.Spec.NodeName+" by instance "+i.InstanceID, opts...)
		}
		require.ErrorContains(t, s.api.DeleteAllOf(t.Context(), &v1alpha1.ClusterModelCache{}), "ClusterModelCache kept is in use")
		guard(t, false) // as where no controller answers
		t.Cleanup(func() { guard(t, true) })
		s.eventually("the API server has heard", func() bool { return !refused() })
	}
	require.NoError(t, s.api.Delete(t.Context(), c))
	status = s.told(c.Name, "who uses it is named", func(s *v1alpha1.ClusterModelCacheStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDeletionBlocked)
	})
	blocked := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeletionBlocked)
	assert.Contains(t, blocked.Message, i.InstanceID)
	s.scale("kept", 0)
	s.gone("kept")
	_, err := s.launcher(launcher.Name).Delete(t.Context(), i.InstanceID)
	require.NoError(t, err)
	s.eventually("the object is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(c), &v1alpha1.ClusterModelCache{}))
	})
	for node := range 2 {
		assert.Empty(t, s.modelsOf(node+1))
	}
	assert.True(t, strings.HasPrefix(s.hub.URL, "https://"))
}

// asksBeforeDeletions reports whether the API server asks the controller before it deletes a
// ClusterModelCache. The API servers here route to the endpoints of a Service by themselves
// (--enable-aggregator-routing). Before Kubernetes 1.34 they then read Endpoints, and the
// controller keeps an EndpointSlice: the deletion is let through, as where no controller answers.
func (s *site) asksBeforeDeletions() bool {
	s.t.Helper()
	var version struct{ Minor string }
	require.NoError(s.t, json.Unmarshal([]byte(s.kubectl("get", "--raw", "/version")), &version))
	minor, err := strconv.Atoi(version.Minor)
	require.NoError(s.t, err)
	return minor >= 34
}

// refusesDeletion shows that the API server does not delete a ClusterModelCache, since it is in use
// as the words say.
func (s *site) refusesDeletion(c *v1alpha1.ClusterModelCache, words string, opts ...client.DeleteOption) {
	s.t.Helper()
	err := s.api.Delete(s.t.Context(), c, opts...)
	require.True(s.t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(s.t, err, "ClusterModelCache "+c.Name+" is in use: "+words)
}

// guard has the API server ask whether ClusterModelCaches may be deleted, or not.
func guard(t *testing.T, asked bool) {
	t.Helper()
	selector := "{}"
	if !asked {
		selector = `{"matchLabels":{"e2e":"nobody"}}`
	}
	ctx := context.WithoutCancel(t.Context()) // also at the test's end
	_, err := laneOf(t).cluster.Kubectl(ctx, nil, "patch", "validatingwebhookconfiguration/hotseat-controller-models", "--type=json",
		`-p=[{"op":"add","path":"/webhooks/0/objectSelector","value":`+selector+`}]`)
	require.NoError(t, err)
}

func TestARequesterOrItsNamespaceSaysFromWhereItsModelComes(t *testing.T) {
	s := newModelSite(t, nil)
	s.hub.Put("org/m", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}")}})
	s.allReady()
	s.told(s.keep("from", "org/m").Name, "both nodes have it", everywhere)
	from := func(v server) (podmeta.Status, launcherapi.Instance) {
		t.Helper()
		pod := s.start(v)
		s.served(v.app, 1)
		s.eventually("its status tells from where its model came", func() bool { return s.status(pod.Name).ModelFrom != "" })
		status := s.status(pod.Name)
		i, err := s.launcher(status.Launcher).Get(t.Context(), status.Instance)
		require.NoError(t, err)
		assert.Equal(t, i.ModelFrom, status.ModelFrom)
		require.NoError(t, s.api.Delete(t.Context(), pod))
		s.gone(v.app)
		return status, i
	}
	status, kept := from(server{app: "m", node: 1})
	launcher := status.Launcher
	assert.Equal(t, launcherapi.ModelFromCache, status.ModelFrom, status.ModelWhy)
	status, i := from(server{app: "m", node: 1, from: "off"})
	assert.Equal(t, launcherapi.ModelFromSource, status.ModelFrom)
	assert.Equal(t, "model_cache is off", status.ModelWhy)
	assert.NotEqual(t, kept.InstanceID, i.InstanceID, "what sleeps with the copy is not woken")

	annotate := func(mode string) {
		t.Helper()
		_, err := s.cluster.Kubectl(t.Context(), nil, "annotate", "--overwrite", "namespace", s.ns, podmeta.AnnotationModelCache+"="+mode)
		require.NoError(t, err)
	}
	annotate("sometimes")
	wrong := s.start(server{app: "wrong"})
	s.waitsFor("wrong", "annotation hotseat.dev/model-cache of namespace "+s.ns+": ") // the status is JSON, which quotes the rest otherwise than an Event
	require.NoError(t, s.api.Delete(t.Context(), wrong))
	annotate("require")
	missing := s.start(server{app: "elsewhere"}) // of model org/elsewhere, which no cache keeps
	s.waitsFor("elsewhere", "cannot serve the model org/elsewhere from the store")
	require.NoError(t, s.api.Delete(t.Context(), missing))
	status, _ = from(server{app: "own", node: 1, from: "auto"})
	assert.Equal(t, launcherapi.ModelFromSource, status.ModelFrom, "the requester's own word counts")
	annotate("off")
	status, _ = from(server{app: "m", node: 2})
	assert.Equal(t, launcherapi.ModelFromSource, status.ModelFrom)
	_, err := s.launcher(launcher).Delete(t.Context(), kept.InstanceID) // which would keep the model, and that the cache
	require.NoError(t, err)
}

func TestNodesFetchOneAfterTheOtherAndTheModelLeavesANodeThatLeavesTheGroup(t *testing.T) {
	label := "e2e.hotseat.dev/" + strings.TrimPrefix(t.Name(), "Test")[:20]
	mark := func(node int, value string) {
		t.Helper()
		_, err := laneOf(t).cluster.Kubectl(t.Context(), nil, "label", "--overwrite", "node", cluster.NodeName(node), label+value)
		require.NoError(t, err)
	}
	mark(1, "=yes")
	mark(2, "=yes")
	t.Cleanup(func() {
		for node := range 2 {
			_, err := laneOf(t).cluster.Kubectl(context.Background(), nil, "label", "node", cluster.NodeName(node+1), label+"-")
			assert.NoError(t, err)
		}
	})
	s := newModelSite(t, func(g *v1alpha1.ModelCacheNodeGroup) {
		one, slow := int32(1), resource.MustParse("512Ki")
		g.Spec.NodeSelector, g.Spec.MaxConcurrentNodes, g.Spec.PerNode.BytesPerSecond = map[string]string{label: "yes"}, &one, &slow
	})
	s.hub.Put("org/slow", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"model.safetensors": bytes.Repeat([]byte("w"), 2<<20)}})
	s.allReady()
	c := s.keep("slow", "org/slow")
	fetched := map[string]bool{}
	s.told(c.Name, "both nodes have it", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		require.LessOrEqual(t, status.Downloading, int32(1))
		for _, n := range status.Nodes {
			if n.State == v1alpha1.ModelNodeDownloading {
				fetched[n.Node] = true
			}
		}
		return everywhere(status)
	})
	assert.Len(t, fetched, 2, "each was seen to fetch, one after the other")

	mark(2, "=no")
	s.told(c.Name, "one node is to have it", func(status *v1alpha1.ClusterModelCacheStatus) bool { return status.Progress == "1/1" })
	s.eventually("the other has dropped it", func() bool { return len(s.modelsOf(2)) == 0 })
	mark(2, "=yes")
	s.told(c.Name, "both nodes have it again", everywhere)
}

func TestWhyAModelIsNotFetchedIsToldAndItIsFetchedOnceItCanBe(t *testing.T) {
	s := newModelSite(t, nil)
	s.allReady()
	c := s.keep("missing", "org/missing")
	status := s.told(c.Name, "that the source has no such model", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		return status.Failed > 0
	})
	resolved := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved)
	assert.Equal(t, "NotFound", resolved.Reason)
	assert.Contains(t, resolved.Message, "org/missing")
	s.eventually("an Event says so", func() bool {
		out, err := s.cluster.Kubectl(t.Context(), nil, "get", "events", "-A", "--field-selector=reason=NotFound,type=Warning", "-o", "jsonpath={.items[*].regarding.name}{.items[*].involvedObject.name}")
		return err == nil && strings.Contains(string(out), "missing")
	})
	s.hub.Put("org/missing", hubserver.Model{Commit: hubCommit, Files: map[string][]byte{"config.json": []byte("{}")}})
	s.told(c.Name, "both nodes have it", everywhere)
	assert.Contains(t, s.kubectl("get", "cmc", "missing"), "2/2")
	group := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.group}}
	require.NoError(t, s.api.Delete(t.Context(), group))
	s.told(c.Name, "the group is missing", func(status *v1alpha1.ClusterModelCacheStatus) bool {
		available := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAvailable)
		return available.Reason == v1alpha1.ReasonNodeGroupMissing
	})
	assert.Len(t, s.modelsOf(1), 1, "nothing is removed for want of a group")
}

const exampleCache = "examples/model-cache/tiny.yaml"

// newExampleCache makes a namespace with the example of a model cache, which both nodes
// keep.
func newExampleCache(t *testing.T) *site {
	t.Helper()
	s := newBareSite(t)
	s.apply(exampleCache)
	t.Cleanup(func() {
		for _, object := range []string{"cmc/tiny", "mcng/all-nodes"} {
			_, err := s.cluster.Kubectl(context.Background(), nil, "delete", "--timeout="+patience.Wait().String(), "--ignore-not-found", object)
			assert.NoError(t, err)
		}
	})
	s.kubectl("rollout", "status", "deployment/tiny", "--timeout="+patience.Wait().String())
	s.kubectl("wait", "--for=jsonpath={.status.ready}=2", "lcfg/cached", "--timeout="+patience.Wait().String()) // the launcher of the other node may come later
	s.kubectl("wait", "--for=condition=Available", "--timeout="+patience.Wait().String(), "cmc/tiny")
	return s
}

// removeExampleCache removes it as spec/guide/model-caches.md has it: what sleeps goes with
// its launcher, and its lease with both.
func (s *site) removeExampleCache() {
	s.t.Helper()
	s.kubectl("delete", "deployment/tiny", "lcfg/cached")
	s.kubectl("wait", "--for=delete", "--timeout=2m", "pod", "-l", "hotseat.dev/launcher-config=cached")
	s.kubectl("delete", "--ignore-not-found", "-f", root(exampleCache))
}

func TestTheExampleOfAModelCacheKeepsItsModelAndServesIt(t *testing.T) {
	s := newExampleCache(t)
	var from []string
	for _, pod := range s.launcherPods("cached") {
		for _, instance := range s.instances(s.launcher(pod.Name)) {
			from = append(from, instance.ModelFrom)
		}
	}
	assert.Equal(t, []string{launcherapi.ModelFromCache}, from)
	s.removeExampleCache()
}

// launcherPods are the launchers of a LauncherConfig.
func (s *site) launcherPods(config string) []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelLauncherConfig: config}))
	return pods.Items
}
