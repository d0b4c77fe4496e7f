//go:build cluster

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheLogOfARequesterIsThatOfItsModelServer(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	const started = "Application startup complete"
	logOf := func(pod string) string { return s.kubectl("logs", pod) }
	says := func(pod, what string) {
		t.Helper()
		s.eventually("the log of "+pod+" says: "+what, func() bool {
			out, err := s.cluster.Kubectl(t.Context(), nil, "-n", s.ns, "logs", pod)
			return err == nil && strings.Contains(string(out), what) // its container may not have begun
		})
	}

	s.deploy(server{app: "model-a", node: 1}, 1)
	first := s.served("model-a", 1)[0].Name
	says(first, started)
	assert.Equal(t, 1, strings.Count(logOf(first), started), "nothing is printed twice")
	s.scale("model-a", 0)
	s.gone("model-a")
	s.scale("model-a", 1)
	second := s.served("model-a", 1)[0].Name
	assert.False(t, strings.Contains(logOf(second), started), "what it said before it slept is another requester's")
	s.scale("model-a", 0)
	s.gone("model-a")

	s.start(server{app: "gated", node: 1, args: []string{"--sim-gated=true"}})
	says("gated", "Cannot access gated repo")
	s.delete("gated")
	s.gone("gated")
}
