//go:build cluster && clusterlong

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proposalsProfiles are those that the Model of the proposal names. Here they all are processors, with the stand-in for vLLM.
const proposalsProfiles = `
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: NAME}
spec:
  requests: {cpu: 1m}
  limits: {memory: 64Mi}
  images: {VLLM: 'hotseat.local/enginesim:dev', OLlama: 'hotseat.local/enginesim:dev'}
---
`

func TestProposalsModelSaysWhichArgumentsAreGone(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	var all string
	for _, name := range []string{"nvidia-gpu-l4", "google-tpu-v5e-2x2", "cpu"} {
		all += strings.Replace(proposalsProfiles, "NAME", name, 1)
	}
	text, err := os.ReadFile(root("examples/models/proposal.yaml"))
	require.NoError(t, err)
	apply := func(model string) {
		_, err := s.cluster.Kubectl(t.Context(), strings.NewReader(all+model), "-n", s.ns, "apply", "-f", "-")
		require.NoError(t, err)
	}
	apply(string(text))
	stop := s.chats("llama-3.1", s.frontDoor(), 1)
	for entry, flags := range map[string][]string{
		"gpu-l4-70b": {"--enable-chunked-prefill/--no-enable-chunked-prefill: ignored explicit argument 'false'"}, // vLLM names it first, and alone
		"tpu-v5e-8b": {"--disable-log-requests", "--swap-space=8", "--num-scheduler-steps=4"},
	} {
		s.eventually(entry+" has failed", func() bool { return s.entry("llama-3.1", entry).LastFailure != nil })
		f := s.failure("llama-3.1", entry)
		t.Log(f.Message)
		assert.Equal(t, "EngineFailed", f.Reason)
		for _, flag := range flags {
			assert.Contains(t, f.Message, flag)
		}
	}
	assert.Zero(t, s.entry("llama-3.1", "cpu-3b").Replicas.Ready)

	// The copy without them.
	var lines []string
	for line := range strings.Lines(strings.Replace(string(text), "- --enable-chunked-prefill=false", "- --no-enable-chunked-prefill", 1)) {
		switch strings.TrimSpace(line) {
		case "- --disable-log-requests", "- --swap-space=8", "- --num-scheduler-steps=4":
		default:
			lines = append(lines, line)
		}
	}
	apply(strings.Join(lines, ""))
	s.serves("llama-3.1", "gpu-l4-70b (1)")
	stop()
	status, answer := s.chat("llama-3.1")
	assert.Equal(t, 200, status, answer)
	for _, entry := range []string{"gpu-l4-70b", "tpu-v5e-8b"} {
		s.eventually(entry+" has not failed any more", func() bool { return s.entry("llama-3.1", entry).LastFailure == nil })
	}
	s.kubectl("patch", "mdl/llama-3.1", "--type=merge", "-p", `{"spec": {"minReplicas": 1}}`)
	s.serves("llama-3.1", "gpu-l4-70b (1), tpu-v5e-8b (1)")
}
