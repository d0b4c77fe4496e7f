//go:build cluster

package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/test/cluster"
)

// forward has kubectl forward a port of this machine to a Pod's, until the test ends.
func (s *site) forward(pod, port string) (address string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.cluster.Bin(), "kubectl"), "-n", s.ns, "port-forward", pod, ":"+port)
	cmd.Env, cmd.Stderr = s.cluster.Environ(), os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	lines := bufio.NewReader(out)
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait() // it ends by the signal
	})
	line, err := lines.ReadString('\n')
	require.NoError(s.t, err, "kubectl port-forward says where")
	found := regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) ->`).FindStringSubmatch(line)
	require.Len(s.t, found, 2, line)
	return found[1]
}

// TestAnAdministratorCallsALauncherByHand does what spec/guide/kubernetes.md says: by kubectl and
// curl alone.
func TestAnAdministratorCallsALauncherByHand(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	launcher := s.poolPods()[cluster.NodeName(1)]
	text, err := s.cluster.Kubectl(t.Context(), nil, "-n", system, "exec", "deployment/hotseat-controller", "--", "/controller", "client-certificate")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hotseat.pem")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	at := s.forward("pod/"+launcher.Name, "8001")
	curl := func(more ...string) string {
		t.Helper()
		args := append([]string{"-sS", "--cacert", file, "--connect-to", "::" + at}, more...)
		out, err := exec.CommandContext(t.Context(), "curl", append(args, "https://"+mtls.LauncherName(s.ns, "simulated")+"/v2/gpus")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Contains(t, curl("--cert", file), s.cluster.UUIDs(1)[0])
	refused := curl()
	assert.Contains(t, refused, "a client certificate is required")
	assert.NotContains(t, refused, s.cluster.UUIDs(1)[0])
}
