package binding

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestGateSufficesWhereThereIsNothingElseToTell(t *testing.T) {
	for name, c := range map[string]struct {
		status    string // in the annotation
		so        func(o *decide.Observation)
		published bool
	}{
		"no status":                        {"", func(*decide.Observation) {}, true},
		"no status, and no gate":           {"", func(o *decide.Observation) { o.Requester.Gate = false }, false},
		"what it waited for":               {`{"state":"Waiting","reason":"LauncherMissing"}`, func(*decide.Observation) {}, false},
		"what it waited for while served":  {`{"state":"Serving","reason":"LauncherSilent"}`, func(*decide.Observation) {}, false},
		"no status, fields without use":    {"", func(o *decide.Observation) { o.Form.Ignored = []string{"spec.hostname"} }, false},
		"no status, labels left alone":     {"", func(o *decide.Observation) { o.Form.LeftAlone = []string{"app"} }, false},
		"no status, an edit that waits":    {"", func(o *decide.Observation) { o.Record.SpecHash = "earlier" }, false},
		"no status, wrong input":           {"", func(o *decide.Observation) { o.Problems = []podmeta.Problem{{Message: "wrong"}} }, false},
		"no status, labels to be put on":   {"", func(o *decide.Observation) { o.Form.Labels = map[string]string{"model": "m"} }, false},
		"the status of an earlier release": {`{"state":"Serving","since":"2026-11-22T11:00:00Z","launcher":"launcher-0","instance":"model-1"}`, func(*decide.Observation) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := with("awake")
			o.Requester.Gate, o.Requester.GateOpen = true, true
			c.so(&o)
			pod := &corev1.Pod{}
			if c.status != "" {
				pod.Annotations = map[string]string{podmeta.AnnotationStatus: c.status}
			}
			assert.Equal(t, c.published, published(pod, nil, o))
		})
	}
}

func TestGateSaysSinceWhenARequesterServesOrWaits(t *testing.T) {
	at, before := now.Add(-time.Minute), now.Add(-time.Hour)
	status := func(state string) *podmeta.Status { return &podmeta.Status{State: state, Since: before} }
	gate := func(status corev1.ConditionStatus, reason decide.Reason) *corev1.PodCondition {
		return &corev1.PodCondition{Type: podmeta.ReadinessGate, Status: status, Reason: string(reason), LastTransitionTime: metav1.NewTime(at)}
	}
	for name, c := range map[string]struct {
		status        *podmeta.Status
		gate          *corev1.PodCondition
		serves, waits time.Time
	}{
		"neither":                              {nil, nil, time.Time{}, time.Time{}},
		"the gate is open":                     {nil, gate(corev1.ConditionTrue, "Serving"), at, time.Time{}},
		"the gate is open, the status waits":   {status(decide.StateWaiting), gate(corev1.ConditionTrue, "Serving"), at, time.Time{}},
		"the status serves":                    {status(decide.StateServing), nil, before, time.Time{}},
		"the status waits":                     {status(decide.StateWaiting), nil, time.Time{}, before},
		"the gate was shut by the controller":  {nil, gate(corev1.ConditionFalse, decide.NotServing), time.Time{}, at},
		"the gate was shut before it served":   {nil, gate(corev1.ConditionFalse, decide.NotAwake), time.Time{}, time.Time{}},
		"the gate was shut by somebody else":   {nil, gate(corev1.ConditionFalse, "ByHand"), time.Time{}, time.Time{}},
		"the gate was shut, the status waited": {status(decide.StateWaiting), gate(corev1.ConditionFalse, decide.NotServing), time.Time{}, at},
		"the gate was shut, the status waits":  {&podmeta.Status{State: decide.StateWaiting, Since: now}, gate(corev1.ConditionFalse, decide.NotServing), time.Time{}, now},
		"the gate was shut, the status serves": {status(decide.StateServing), gate(corev1.ConditionFalse, decide.NotServing), before, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if c.status != nil {
				text, err := json.Marshal(c.status)
				require.NoError(t, err)
				pod.Annotations = map[string]string{podmeta.AnnotationStatus: string(text)}
			}
			if c.gate != nil {
				pod.Status.Conditions = []corev1.PodCondition{*c.gate}
			}
			serves, waits := servesSince(pod, podmeta.ReadStatus(pod))
			assert.True(t, serves.Equal(c.serves), serves)
			assert.True(t, waits.Equal(c.waits), waits)
		})
	}
}
