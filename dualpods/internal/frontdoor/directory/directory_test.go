package directory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var llama = types.NamespacedName{Namespace: "team", Name: "llama"}

// noted is a directory with the Models that have changed.
type noted struct {
	*directory.Directory
	changed []types.NamespacedName
}

func newDirectory() *noted {
	n := &noted{}
	n.Directory = directory.New(func(model types.NamespacedName) { n.changed = append(n.changed, model) })
	return n
}

// changes returns the Models that have changed since it was called last.
func (n *noted) changes() []types.NamespacedName {
	all := n.changed
	n.changed = nil
	return all
}

func all(*directory.Model) bool { return true }

func model(name string) *v1alpha1.Model {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"of": name}}}
	m.Specs = []v1alpha1.ModelEntry{{Name: "gpu"}, {Name: "cpu"}}
	m.Specs[0].TargetRequests, m.Specs[1].TargetRequests = new(int32(500)), new(int32(0))
	return m
}

func pod(name, entry string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{
		podmeta.LabelModel: "llama", podmeta.LabelModelEntry: entry, podmeta.LabelServes: "llama",
	}}}
	p.Status.PodIP = "10.0.0.1"
	return p
}

func TestPodServesWhileItHasTheLabel(t *testing.T) {
	d := newDirectory()
	d.SetPod(pod("b", "gpu"))
	assert.Empty(t, d.Serving(llama), "there is no such Model yet")
	d.SetModel(model("llama"))
	d.SetPod(pod("a", "cpu"))
	assert.Equal(t, []directory.Endpoint{{Pod: "a", Address: "10.0.0.1:8000", Entry: "cpu"}, {Pod: "b", Address: "10.0.0.1:8000", Entry: "gpu", Weight: 500}}, d.Serving(llama))
	d.changes()
	d.SetPod(pod("a", "cpu"))
	assert.Empty(t, d.changes(), "nothing has changed")

	for name, change := range map[string]func(*corev1.Pod){
		"without the label":        func(p *corev1.Pod) { delete(p.Labels, podmeta.LabelServes) },
		"that is being deleted":    func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"without an address":       func(p *corev1.Pod) { p.Status.PodIP = "" },
		"that is of another":       func(p *corev1.Pod) { p.Labels[podmeta.LabelModel] = "other" },
		"whose entry is not there": func(p *corev1.Pod) { p.Labels[podmeta.LabelModelEntry] = "tpu" },
	} {
		d.SetPod(pod("b", "gpu"))
		d.changes()
		changed := pod("b", "gpu")
		change(changed)
		d.SetPod(changed)
		assert.Len(t, d.Serving(llama), 1, "a Pod "+name)
		assert.Equal(t, []types.NamespacedName{llama}, d.changes(), name)
	}
	d.DeletePod(types.NamespacedName{Namespace: "team", Name: "a"})
	assert.Empty(t, d.Serving(llama))
	d.SetPod(pod("a", "cpu"))
	d.DeleteModel(llama)
	assert.Empty(t, d.Serving(llama))
	assert.False(t, d.Has(llama))
}

func TestModelIsFoundByItsNames(t *testing.T) {
	d := newDirectory()
	m := model("llama")
	m.Spec.Aliases, m.Spec.Adapters = []string{"gpt-4o", "qwen"}, []v1alpha1.ModelAdapter{{Name: "a"}}
	d.SetModel(m)
	d.SetModel(model("qwen"))
	for name, want := range map[string][2]string{"llama": {"llama", ""}, "gpt-4o": {"llama", ""}, "llama_a": {"llama", "a"}, "qwen": {"qwen", ""}} {
		found, adapter, err := d.Find("team", name, all)
		require.NoError(t, err, name)
		assert.Equal(t, want, [2]string{found.Key.Name, adapter}, name)
	}
	_, _, err := d.Find("team", "lama", all)
	require.EqualError(t, err, `there is no model "lama": did you mean llama? There are: llama, gpt-4o, qwen, llama_a, qwen`)
	_, _, err = d.Find("team", "something", all)
	require.EqualError(t, err, `there is no model "something". There are: llama, gpt-4o, qwen, llama_a, qwen`)
	_, _, err = d.Find("other", "llama", all)
	require.EqualError(t, err, `there is no model "llama": there are no models here`)
	only := func(m *directory.Model) bool { return m.Labels["of"] == "qwen" }
	_, _, err = d.Find("team", "llama", only)
	require.Error(t, err)
	assert.Len(t, d.List("team", only), 1)
	assert.Len(t, d.List("team", all), 2)
}

func TestAliasOfTwoModelsStandsForTheOlder(t *testing.T) {
	older, younger := model("z"), model("a")
	older.CreationTimestamp, younger.CreationTimestamp = metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	older.Spec.Aliases, younger.Spec.Aliases = []string{"gpt"}, []string{"gpt"}
	for _, order := range [][]*v1alpha1.Model{{older, younger}, {younger, older}} {
		d := newDirectory()
		for _, m := range order {
			d.SetModel(m)
		}
		found, _, err := d.Find("team", "gpt", all)
		require.NoError(t, err)
		assert.Equal(t, "z", found.Key.Name)
		d.DeleteModel(found.Key)
		found, _, err = d.Find("team", "gpt", all)
		require.NoError(t, err)
		assert.Equal(t, "a", found.Key.Name)
	}
}

func TestSettingsHaveTheirDefaults(t *testing.T) {
	d := newDirectory()
	d.SetModel(&v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llama"}})
	m, _, err := d.Find("team", "llama", all)
	require.NoError(t, err)
	assert.Equal(t, []any{300 * time.Second, 1000, false, 256, 125, 100}, []any{m.Hold, m.MaxHeld, m.ByPrefix, m.Replication, m.MeanLoadPercentage, m.PrefixCharLength})
	assert.Equal(t, []v1alpha1.ModelFeature{v1alpha1.FeatureTextGeneration}, m.Features)

	full := model("llama")
	full.Spec.Hold = &v1alpha1.ModelHold{TimeoutSeconds: new(int32(5)), Max: new(int32(0))}
	full.Spec.LoadBalancing = &v1alpha1.LoadBalancing{Strategy: "PrefixHash", PrefixHash: &v1alpha1.PrefixHash{MeanLoadPercentage: new(int32(150)), Replication: new(int32(9)), PrefixChatLength: new(int32(7))}}
	d.SetModel(full)
	m, _, err = d.Find("team", "llama", all)
	require.NoError(t, err)
	assert.Equal(t, []any{5 * time.Second, 0, true, 9, 150, 7}, []any{m.Hold, m.MaxHeld, m.ByPrefix, m.Replication, m.MeanLoadPercentage, m.PrefixCharLength})
}
