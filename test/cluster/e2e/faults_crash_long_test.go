//go:build cluster && clusterlong

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// crashSite is a site whose controller is a process of the test: it can be told
// to kill itself after a step, and is started again at once.
type crashSite struct {
	*site
	kubeconfig string
	log        *os.File
	running    *exec.Cmd
}

// crashing has the cluster's own controller away until the test ends.
func (plain *site) crashing() *crashSite {
	s, t := &crashSite{site: plain}, plain.t
	t.Helper()
	dir := t.TempDir()
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	s.writeKubeconfig()
	var err error
	s.log, err = os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	scale := func(ctx context.Context, n int) {
		_, err := s.cluster.Kubectl(ctx, nil, "-n", system, "scale", "deployment/"+controllers, fmt.Sprintf("--replicas=%d", n))
		assert.NoError(t, err)
	}
	scale(t.Context(), 0)
	t.Cleanup(func() {
		s.stop()
		scale(context.Background(), 1)
		if t.Failed() {
			text, _ := os.ReadFile(s.log.Name())
			t.Logf("the controllers of this test:\n%s", text)
		}
		assert.NoError(t, s.log.Close())
	})
	s.eventually("the cluster's own controller is away", func() bool {
		var pods corev1.PodList
		err := s.api.List(t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"})
		return err == nil && len(pods.Items) == 0
	})
	return s
}

// writeKubeconfig is for the controller's service account, and for the network
// of the cluster.
func (s *crashSite) writeKubeconfig() {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.cluster.Kubeconfig())
	require.NoError(s.t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: controllers}}
	request := &authenticationv1.TokenRequest{}
	require.NoError(s.t, s.api.SubResource("token").Create(s.t.Context(), account, request))
	for _, c := range config.Clusters {
		c.Server = cluster.Server
	}
	for _, user := range config.AuthInfos {
		user.Token, user.ClientCertificateData, user.ClientKeyData = request.Status.Token, nil, nil
	}
	require.NoError(s.t, clientcmd.WriteToFile(*config, s.kubeconfig))
}

// run starts a controller that ends by SIGKILL after the step of that row; empty:
// one that goes on.
func (s *crashSite) run(row string) {
	s.t.Helper()
	s.stop()
	program, err := filepath.Abs(root("bin/controller"))
	require.NoError(s.t, err)
	s.running = exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", s.cluster.Keeper), program, "--ca-namespace="+system,
		"--launcher-priority-class=hotseat-launcher") // as the chart's, or launchers that are there would be of an earlier template
	s.running.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOTSEAT_CRASH_AT="+row)
	s.running.Stdout, s.running.Stderr = s.log, s.log
	_, _ = fmt.Fprintf(s.log, "--- a controller that is to crash at %q\n", row)
	require.NoError(s.t, s.running.Start())
}

// stop ends the controller that runs, if any.
func (s *crashSite) stop() {
	if s.running == nil {
		return
	}
	_ = s.running.Process.Kill() // it may have ended
	_ = s.running.Wait()         // it was killed
	s.running = nil
}

// crashed waits until the controller has killed itself, and starts another.
func (s *crashSite) crashed(row, next string) {
	s.t.Helper()
	s.ended(row)
	s.run(next)
}

// ended waits until the controller has killed itself.
func (s *crashSite) ended(row string) {
	s.t.Helper()
	ended := make(chan error, 1)
	process := s.running
	s.running = nil
	go func() { ended <- process.Wait() }()
	select {
	case err := <-ended:
		require.Error(s.t, err, "at %q", row)
		require.Equal(s.t, syscall.SIGKILL, process.ProcessState.Sys().(syscall.WaitStatus).Signal(), "at %q", row)
	case <-time.After(patience.Wait()):
		_ = process.Process.Kill() // it runs
		s.t.Logf("it was killed: %v", <-ended)
		require.Fail(s.t, "the controller did not come by "+row)
	}
}

// upAndDown makes a requester, and deletes it when it is served. One controller
// dies after the step of a row on the way up, the next one on the way down; empty
// for one that does not die.
func (s *crashSite) upAndDown(app, up, down string) (i launcherapi.Instance) {
	s.t.Helper()
	s.run(up)
	s.start(server{app: app, node: 1, gate: true, labels: map[string]string{"example.com/model": app}, args: []string{"--sim-load-time=200ms"}})
	if up != "" {
		s.crashed(up, down)
	} else if down != "" {
		s.run(down)
	}
	pod := s.served(app, 1)[0]
	s.stillAnswers(pod)
	i = s.instance("launcher-node-1", app, "awake")
	s.startedOnce(i, app)
	s.delete(app)
	if down != "" {
		s.crashed(down, "")
	}
	s.gone(app)
	s.free("launcher-node-1")
	now := s.instances(s.launcher("launcher-node-1"))["org/"+app]
	assert.Equal(s.t, "sleeping", now.State)
	assert.Equal(s.t, i.PID, now.PID, "it was started once")
	return i
}
