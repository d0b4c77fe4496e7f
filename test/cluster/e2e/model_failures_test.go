//go:build cluster

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// preferred is a Model whose entry a has a GPU, and b a processor. Its words are filled in for a.
const preferred = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  scaleDownDelaySeconds: 5
specs:
- name: a
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4, WORDS]
- name: b
  resourceProfile: e2e-processor
`

// answersFrom asks a Model, and says which of its entries serves then.
func (s *site) answersFrom(model, entries string) {
	s.t.Helper()
	status, text := s.chat(model)
	require.Equal(s.t, http.StatusOK, status, text)
	s.serves(model, entries)
}

// failure returns why an entry failed.
func (s *site) failure(model, entry string) v1alpha1.ModelFailure {
	s.t.Helper()
	f := s.entry(model, entry).LastFailure
	require.NotNil(s.t, f)
	return *f
}

func TestQuotaOfAnEntryLeadsToTheNext(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpus"}}
	quota.Spec.Hard = corev1.ResourceList{"requests.nvidia.com/gpu": quantity(0)}
	require.NoError(t, s.api.Create(t.Context(), quota))
	s.eventually("the quota counts", func() bool { return s.kubectl("get", "quota/gpus", "-o=jsonpath={.status.hard}") != "" })
	s.declare(strings.Replace(preferred, "WORDS", "--seed=1", 1))
	s.answersFrom("llama", "b (1)")
	f := s.failure("llama", "a")
	assert.Equal(t, "NotCreated", f.Reason)
	assert.Contains(t, f.Message, "exceeded quota: gpus")
	assert.Zero(t, s.replicasOf("llama-a"), "what cannot be created is taken back")
}

func TestFailingEngineLeadsToTheNextEntry(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	s.declare(strings.Replace(preferred, "WORDS", "--sim-crash-at-load=exit:3", 1))
	s.answersFrom("llama", "b (1)")
	f := s.failure("llama", "a")
	assert.Equal(t, "EngineFailed", f.Reason)
	assert.Contains(t, f.Message, "exit code 3")
	t.Log(f.Message)
	s.eventually("Events tell it", func() bool {
		return strings.Contains(s.eventsOf("llama", "EngineFailed"), "exit code 3") && strings.Contains(s.eventsOf("llama", "EntryAsked"), "entry b: it is asked for replicas (1)")
	})

	// The same in Pods of its own.
	s.declare(strings.NewReplacer("e2e-gpu", "e2e-processor", "WORDS", "--sim-crash-at-load=exit:3", "name: llama", "name: other").Replace(preferred))
	s.answersFrom("other", "b (1)")
	f = s.failure("other", "a")
	assert.Equal(t, "EngineFailed", f.Reason)
	assert.Contains(t, f.Message, "exit code 3")
	t.Log(f.Message)
}

func TestWrongInputOfAnEntryWaitsForAnEdit(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	s.declare(strings.Replace(preferred, "WORDS", "--served-model-name=mine", 1))
	s.answersFrom("llama", "b (1)")
	f := s.failure("llama", "a")
	assert.Equal(t, "InvalidInput", f.Reason, f.Message)
	assert.Contains(t, f.Message, "--served-model-name is decided by the controller")
	assert.Nil(t, s.entry("llama", "a").BackoffUntil)
	s.eventually("it goes to zero", func() bool { return len(s.modelPods("llama")) == 0 })
	s.answersFrom("llama", "b (1)")
	assert.Equal(t, f, s.failure("llama", "a"), "it was not tried again")

	s.kubectlEdit("mdl/llama", "s/served-model-name=mine/tensor-parallel-size=2/") // which its launcher refuses
	s.eventually("the words of the launcher are told", func() bool {
		s.chat("llama")
		f := s.entry("llama", "a").LastFailure
		return f != nil && strings.Contains(f.Message, "tensor parallel 2")
	})
	assert.Equal(t, "InvalidInput", s.failure("llama", "a").Reason)
	assert.Nil(t, s.entry("llama", "a").BackoffUntil)
	s.kubectlEdit("mdl/llama", "s/tensor-parallel-size=2/seed=1/")
	s.eventually("a is tried after an edit", func() bool { s.chat("llama"); return s.model("llama").Status.Serving == "a (1)" })
}
