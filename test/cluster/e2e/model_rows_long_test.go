//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// rowOfAModel is a row of spec/model.md, after whose writes a controller is killed, and a Model that comes by it. Its
// entries are processors, unless they say otherwise.
type rowOfAModel struct {
	row     string
	spec    string // more fields of spec
	entries string
	clients int // that ask all the time, once the Model is there
	// then does what leads to the row; it may start the controller anew. nil: the Model alone leads there.
	then func(s *crashSite, model string)
	// after does what has to follow the kill; nil: nothing.
	after func(s *crashSite, model string)
	end   string // which entries serve at the end; empty: none does
}

const fails = "args: [--sim-crash-at-load=exit:3]"

var rowsOfModels = []rowOfAModel{
	{row: "scaling is off", spec: "autoscaling: {mode: 'Off'}", entries: "[{name: a}]", end: "a (1)", after: func(s *crashSite, model string) {
		s.eventually("there is a Deployment", func() bool { return s.kubectl("get", "deployment", "-o=name") != "" })
		s.kubectl("scale", "deployment/"+model+"-a", "--replicas=1")
	}},
	{row: "input wrong", entries: "[{name: a, args: [--port=1]}, {name: b}]", clients: 1, end: "b (1)"},
	{row: "creation refused", entries: "[{name: a, resourceProfile: e2e-gpu}, {name: b}]", clients: 1, end: "b (1)"}, // by a quota
	{row: "Pod failed", entries: "[{name: a, " + fails + "}, {name: b}]", clients: 1, end: "b (1)"},
	{row: "not ready in time", entries: "[{name: a, scaleUpTimeoutSeconds: 2, args: [--sim-load-time=8s]}, {name: b}]", clients: 1, end: "b (1)"},
	{row: "at its maximum", spec: "targetRequests: 1", entries: "[{name: a, maxReplicas: 1}, {name: b, maxReplicas: 1}]", clients: 4, end: "a (1), b (1)"},
	{row: "total maximum", spec: "targetRequests: 1, totalMaxReplicas: 2", entries: "[{name: a, maxReplicas: 1}, {name: b}]", clients: 6, end: "a (1), b (1)"},
	{row: "minimum", spec: "minReplicas: 2", entries: "[{name: a}]", end: "a (2)"},
	{row: "group backs off", entries: "[{name: a, simultaneousScaleUpGroup: g, " + fails + "}, {name: b, simultaneousScaleUpGroup: g, " + fails + "}]", clients: 1, end: "a (1)", after: func(s *crashSite, model string) {
		s.eventually("all have failed", func() bool {
			return meta.IsStatusConditionTrue(s.model(model).Status.Conditions, v1alpha1.ConditionAllSpecsFailing)
		})
		s.kubectl("patch", "mdl/"+model, "--type=json", "-p", `[{"op": "remove", "path": "/specs/1"}, {"op": "remove", "path": "/specs/0/args"}]`)
	}},
	{row: "demand not known", entries: "[{name: a}]", clients: 1, then: func(s *crashSite, model string) { s.serves(model, "a (1)") }},
	{row: "back to the preferred", entries: "[{name: a, " + fails + "}, {name: b}]", clients: 1, end: "a (1)", then: func(s *crashSite, model string) {
		s.serves(model, "b (1)")
		s.run("back to the preferred")
		s.kubectl("patch", "mdl/"+model, "--type=json", "-p", `[{"op": "remove", "path": "/specs/0/args"}]`)
	}},
	{row: "standby without replicas", entries: "[{name: a}, {name: s, targetRequests: 0}]", clients: 1, end: "a (1)"},
	{row: "later standby", entries: "[{name: s, minReplicas: 1, targetRequests: 0}, {name: t, minReplicas: 1, targetRequests: 0}]", end: "s (1)"},
	{row: "stays", entries: "[{name: a}]", clients: 1, end: "a (1)"},
}

func TestControllerKilledAfterAnyOtherRowOfAModelComesToTheSameEnd(t *testing.T) {
	plain := newPool(t, nil)
	plain.engineImage()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: plain.ns, Name: "gpus"}}
	quota.Spec.Hard = corev1.ResourceList{"requests.nvidia.com/gpu": quantity(0)}
	require.NoError(t, plain.api.Create(t.Context(), quota))
	s := plain.crashing()
	for i, r := range rowsOfModels {
		began, name := time.Now(), fmt.Sprintf("r%d", i)
		if r.then != nil {
			s.run("")
		} else {
			s.run(r.row)
		}
		s.declare(fmt.Sprintf("apiVersion: hotseat.dev/v1alpha1\nkind: Model\nmetadata: {name: %s}\nspec: {url: 'hf://org/%[1]s', resourceProfile: e2e-processor, scaleDownDelaySeconds: 3%s}\nspecs: %s\n",
			name, strings.TrimSuffix(", "+r.spec, ", "), r.entries))
		stop := func() map[string]int { return map[string]int{"200": 1} }
		if r.clients > 0 {
			s.awaitDoors(name)
			stop = s.chats(name, s.frontDoor(), r.clients)
		}
		if r.then != nil {
			r.then(s, name)
		}
		if r.row == "demand not known" { // of a controller that begins when nobody asks any more
			onlyAnswers(t, stop(), 1)
			stop = nil
			s.run(r.row)
		}
		s.crashed(r.row, "")
		if r.after != nil {
			r.after(s, name)
		}
		if r.end != "" {
			s.serves(name, r.end)
		}
		if stop != nil {
			onlyAnswers(t, stop(), 1)
		}
		if r.end == "" {
			s.eventually("it goes to zero", func() bool { return len(s.modelPods(name)) == 0 })
		}
		s.kubectl("delete", "mdl/"+name)
		s.eventually("the Model is gone", func() bool { return len(s.modelPods(name)) == 0 })
		t.Logf("%s: %s", r.row, time.Since(began).Round(100*time.Millisecond))
	}
}

// twoStandbys is a Model with two standbys and no GPU.
const twoStandbys = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec: {url: 'hf://org/llama', resourceProfile: e2e-processor, scaleDownDelaySeconds: 3}
specs:
- {name: a}
- {name: first, minReplicas: 1, targetRequests: 0, args: [--sim-crash-at-load=exit:3]}
- {name: second, minReplicas: 1, targetRequests: 0}
`

func TestStandbysServeInListOrder(t *testing.T) {
	s := newBareSite(t)
	s.engineImage()
	s.declare(twoStandbys)
	s.serves("llama", "second (1)")
	assert.Equal(t, "EngineFailed", s.failure("llama", "first").Reason)
	s.kubectlEdit("mdl/llama", "s/sim-crash-at-load=exit:3/seed=1/")
	s.serves("llama", "first (1)")
	s.eventually("the second one has gone", func() bool { return len(s.entryPods("llama", "second")) == 0 })

	stop := s.chats("llama", s.frontDoor(), 1)
	s.serves("llama", "a (1)")
	s.eventually("both rest", func() bool { return len(s.modelPods("llama")) == 1 })
	onlyAnswers(t, stop(), 1)
	s.serves("llama", "first (1)")
	s.eventually("the first one alone is left", func() bool { return len(s.modelPods("llama")) == 1 })
}
