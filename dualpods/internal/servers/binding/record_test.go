package binding

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestAnAttemptIsAskedForInTheSameWordsThoughAnnotationsAreEdited(t *testing.T) {
	o := fresh()
	o.Form.Annotations = map[string]string{"hotseat.dev/pinned": "true"}
	record := newRecord(o)
	edited := o.Form
	edited.Annotations = nil
	assert.Equal(t, "true", swapRequest(record, edited, podmeta.Rank{}, podmeta.Server{}).In.Annotations["hotseat.dev/pinned"])
	o.Record, o.Form = record, edited
	next := nextRecord(o)
	assert.NotContains(t, swapRequest(next, edited, podmeta.Rank{}, podmeta.Server{}).In.Annotations, "hotseat.dev/pinned", "the next attempt is of what is asked for now")
}

func TestFromWhereAModelComesIsSaidByTheRequesterOrElseByItsNamespace(t *testing.T) {
	for _, c := range []struct{ own, usual, asked string }{{"", "", ""}, {"", "off", "off"}, {"require", "off", "require"}, {"auto", "off", "auto"}} {
		o := fresh()
		o.Form.ModelCache, o.ModelCache = c.own, c.usual
		record := newRecord(o)
		o.ModelCache = "of now"
		assert.Equal(t, c.asked, swapRequest(record, o.Form, podmeta.Rank{}, podmeta.Server{}).In.ModelCache, "%+v: in the same words", c)
		woken := *record
		woken.New = false
		assert.Empty(t, swapRequest(&woken, o.Form, podmeta.Rank{}, podmeta.Server{}).In.ModelCache, "what is there has its model")
		if c.own == "" {
			o.Record = record
			assert.Equal(t, "of now", nextRecord(o).ModelCache)
		}
	}
}

func TestTheCacheCountsWhereNobodyElseSaysFromWhereAModelComes(t *testing.T) {
	for name, c := range map[string]struct {
		own, says, asked string
		asks             bool // the cache
	}{
		"nobody says anything":    {"", "", "require", true},
		"its namespace says auto": {"", "auto", "require", true},
		"off":                     {"", "off", "off", false},
		"require":                 {"", "require", "require", false},
		"the requester says auto": {"auto", "require", "auto", false},
	} {
		ctrl := &Controller{opts: Options{
			ModelCache: func(context.Context, string) (string, []podmeta.Problem) { return c.says, nil },
			Keeper: func(_ context.Context, model modelref.Name, node string) (*dualpods.ModelKeeper, []podmeta.Problem) {
				assert.True(t, c.asks, name)
				return map[string]*dualpods.ModelKeeper{"org/model": {Name: "kept", Node: node}}[model.Model], nil
			},
		}}
		o := fresh()
		o.Form.ModelCache = c.own
		ctrl.fromWhere(t.Context(), &o, "ns")
		assert.Equal(t, c.asks, o.Keeper != nil, name)
		assert.Equal(t, c.asked, newRecord(o).ModelCache, name)
		o = fresh()
		o.Form.Args = []string{"org/other"} // which no cache keeps
		if c.asks {
			ctrl.fromWhere(t.Context(), &o, "ns")
			assert.Equal(t, c.says, newRecord(o).ModelCache, name)
		}
	}
	wrong := []podmeta.Problem{{Message: "cannot be read"}}
	ctrl := &Controller{opts: Options{Keeper: func(context.Context, modelref.Name, string) (*dualpods.ModelKeeper, []podmeta.Problem) {
		return nil, wrong
	}}}
	o := fresh()
	ctrl.fromWhere(t.Context(), &o, "ns")
	assert.Equal(t, wrong, o.Problems)
	o = recorded()
	ctrl.fromWhere(t.Context(), &o, "ns")
	assert.Empty(t, o.Problems, "one that is bound is served on")
}

func TestALauncherSaysWhetherItHasAModelWhole(t *testing.T) {
	l := &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}}}
	assert.Contains(t, l.copyOf(modelref.Name{Model: "org/m"}).Why, "launcher l has no model store")
	l.pod.Labels = map[string]string{podmeta.LabelModelNodeGroup: "all"}
	l.view.ModelsLost, l.view.WhyNoModels = now, "connection refused"
	assert.Equal(t, decide.Copy{Silent: now, Why: "launcher l does not say what models it has: connection refused"}, l.copyOf(modelref.Name{Model: "org/m"}))
	l.view.Models = map[string]nodeview.Model{"1": nodeview.NewModel(launcherapi.Model{URI: "hf://org/m", Refs: []string{"main"}, State: launcherapi.ModelReady})}
	assert.Equal(t, decide.Copy{Whole: true}, l.copyOf(modelref.Name{Model: "org/m"}))
	assert.Equal(t, decide.Copy{}, l.copyOf(modelref.Name{Model: "org/other"}))
}
