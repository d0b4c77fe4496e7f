//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/authoritytest"
	"hotseat.dev/hotseat/spec/demandapi"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// authoritySecret is that of the certificate authority.
func authoritySecret(t *testing.T) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	require.NoError(t, laneOf(t).api.Get(t.Context(), client.ObjectKey{Namespace: system, Name: authoritytest.SecretName}, &secret))
	return &secret
}

// asController is how the controller calls a launcher of that name.
func asController(t *testing.T, name string) *tls.Config {
	t.Helper()
	config, err := authoritytest.Launcher(authoritySecret(t), name)
	require.NoError(t, err)
	return config
}

// stranger is a Pod that is not the controller, in a namespace.
func (s *site) stranger(namespace string) (dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("stranger-%d", time.Now().UnixNano())},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: cluster.NodeName(2)},
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "c", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "GPU-none"}}}},
		},
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), pod))
	s.t.Cleanup(func() { assert.NoError(s.t, s.api.Delete(context.Background(), pod)) })
	s.eventually("the stranger runs", func() bool {
		return s.api.Get(s.t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && readyOrRuns(pod)
	})
	ns := s.networkOf(s.t, pod.Name)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, ns, network, address)
	}
}

func readyOrRuns(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
}

// networkOf is the network namespace of a Pod, whose processes are told by the
// variable that the kubelet gives them. The keeper's /proc shows those of the lane. A
// container runs before runc has become its program.
func (l *lane) networkOf(t *testing.T, pod string) (path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/proc/[0-9]*/environ", l.cluster.Keeper))
		assert.NoError(t, err)
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err == nil && bytes.Contains(append([]byte{0}, text...), []byte("\x00HOSTNAME="+pod+"\x00")) {
				path = filepath.Join(filepath.Dir(file), "ns", "net")
			}
		}
		return path != ""
	}, patience.Wait(), 20*time.Millisecond, "a process of the Pod "+pod)
	return path
}

// dialIn connects from a network namespace.
func dialIn(ctx context.Context, ns, network, address string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		file, err := os.Open(ns)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			answers <- answer{err: err}
			return
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		answers <- answer{conn, err}
	}()
	got := <-answers
	return got.conn, got.err
}

// attempt is an order that somebody gives.
type attempt struct{ method, url, body string }

// try gives the status of the answer, or why there is none.
func try(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), config *tls.Config, a attempt, token string) (int, error) {
	t.Helper()
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	ctx, stop := context.WithTimeout(t.Context(), patience.Wait())
	defer stop()
	req, err := http.NewRequestWithContext(ctx, a.method, a.url, strings.NewReader(a.body))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// refused tries an order by plain HTTP and by TLS, with nothing, with a token and
// with certificates that are not the controller's.
func (s *site) refused(dial func(context.Context, string, string) (net.Conn, error), a attempt) {
	s.t.Helper()
	for _, known := range []string{"", token} {
		status, err := try(s.t, dial, nil, attempt{a.method, "http://" + a.url, a.body}, known)
		if err == nil {
			assert.Equal(s.t, http.StatusBadRequest, status, "plain %s", a.url)
		}
		status, err = try(s.t, dial, &tls.Config{InsecureSkipVerify: true}, attempt{a.method, "https://" + a.url, a.body}, known)
		require.NoError(s.t, err)
		assert.Equal(s.t, http.StatusForbidden, status, "without a certificate: %s", a.url)
	}
	for what, stolen := range s.otherCertificates() {
		show := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stolen, nil }
		_, err := try(s.t, dial, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: show}, attempt{a.method, "https://" + a.url, a.body}, "")
		assert.ErrorContains(s.t, err, "remote error: tls: ", "%s: %s", what, a.url)
	}
}

// otherCertificates are those that somebody may have who is not the controller:
// a launcher's, which Pods of its namespace can mount, and those of an agent and of a front
// door, which root of a node can read.
func (s *site) otherCertificates() map[string]tls.Certificate {
	s.t.Helper()
	all := map[string]tls.Certificate{}
	for whose, key := range map[string]client.ObjectKey{
		"a launcher's": {Namespace: s.ns, Name: "simulated-launcher-tls"}, "an agent's": {Namespace: system, Name: podmeta.AgentSecret},
		"a front door's": {Namespace: system, Name: podmeta.FrontDoorSecret},
	} {
		var secret corev1.Secret
		require.NoError(s.t, s.api.Get(s.t.Context(), key, &secret))
		pair, err := tls.X509KeyPair(secret.Data[mtls.CertFile], secret.Data[mtls.KeyFile])
		require.NoError(s.t, err)
		all[whose] = pair
	}
	return all
}

// openToTheControllerAlone says that a launcher at that address is.
func (s *site) openToTheControllerAlone(ip string) {
	s.t.Helper()
	list := attempt{http.MethodGet, ip + ":8001/v2/vllm/instances", ""}
	s.refused(s.cluster.Dial, list)
	metrics := attempt{http.MethodGet, "https://" + ip + ":8001/metrics", ""}
	status, err := try(s.t, s.cluster.Dial, &tls.Config{InsecureSkipVerify: true}, metrics, "")
	require.NoError(s.t, err)
	assert.Equal(s.t, http.StatusOK, status, "metrics are for everybody")
	list.url = "https://" + list.url
	status, err = try(s.t, s.cluster.Dial, asController(s.t, mtls.LauncherName(s.ns, "simulated")), list, "")
	require.NoError(s.t, err)
	assert.Equal(s.t, http.StatusOK, status)
	_, err = try(s.t, s.cluster.Dial, asController(s.t, mtls.LauncherName("another", "simulated")), list, "")
	assert.ErrorContains(s.t, err, "certificate is valid for "+mtls.LauncherName(s.ns, "simulated"), "the controller knows launchers, too")
}

// demandIsForTheControllerAlone says that the front doors tell their requests to the controller, and to each other.
func (s *site) demandIsForTheControllerAlone() {
	s.t.Helper()
	demand := attempt{http.MethodGet, "https://" + s.frontDoors()[0].Status.PodIP + ":8002" + demandapi.Path, ""}
	_, err := try(s.t, s.cluster.Dial, &tls.Config{InsecureSkipVerify: true}, demand, "")
	assert.ErrorContains(s.t, err, "remote error: tls: ", "without a certificate")
	for what, shown := range s.otherCertificates() {
		if what == "a front door's" {
			continue
		}
		show := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		_, err := try(s.t, s.cluster.Dial, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: show}, demand, "")
		assert.ErrorContains(s.t, err, "remote error: tls: ", what)
	}
	demand.url += "/none" // the stream itself has no end
	status, err := try(s.t, s.cluster.Dial, asController(s.t, mtls.FrontDoorName(system)), demand, "")
	require.NoError(s.t, err)
	assert.Equal(s.t, http.StatusNotFound, status, "the controller is let in")
}

func TestNobodyButTheControllerGivesOrdersToLaunchersAndRequesters(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.apply("examples/dual-pods/requesters.yaml")
	requester := s.served("model-a", 1)[0]
	launcher, agent := s.poolPods()[cluster.NodeName(1)], s.agent(1)
	gpu := s.records(launcher.Name)[0].GPUs[0]
	before := s.instances(s.launcher(launcher.Name))["org/model-a"]

	proxy, err := json.Marshal(requesterapi.ProxyConfig{Binding: "mine", Address: "10.1.2.3", Port: 80})
	require.NoError(t, err)
	spi := requester.Status.PodIP + ":8081"
	other := newBareSite(t)
	for _, dial := range []func(context.Context, string, string) (net.Conn, error){s.stranger(s.ns), s.stranger(other.ns)} {
		for _, a := range []attempt{
			{http.MethodPost, launcher.Status.PodIP + ":8001/v2/vllm/swap", fmt.Sprintf(`{"gpu_uuids":[%q]}`, gpu)},
			{http.MethodPost, launcher.Status.PodIP + ":8001/v2/vllm/instances/" + before.InstanceID + "/sleep", "{}"},
			{http.MethodDelete, launcher.Status.PodIP + ":8001/v2/vllm/instances", ""},
			{http.MethodGet, agent.Status.PodIP + ":8002" + podresourcesapi.Path, ""},
			{http.MethodPost, spi + requesterapi.PathBecomeUnready, ""},
			{http.MethodPost, spi + requesterapi.PathBecomeReady, ""},
			{http.MethodPut, spi + requesterapi.PathProxyConfig, string(proxy)},
			{http.MethodDelete, spi + requesterapi.PathProxyConfig + "?binding=x", ""},
			{http.MethodGet, spi + requesterapi.PathProxyConfig, ""},
			{http.MethodPut, spi + requesterapi.PathProxyHold, `{"binding":"mine"}`},
			{http.MethodPost, spi + requesterapi.PathSetLog + "?startPos=0", "a lie"},
		} {
			s.refused(dial, a)
		}
	}
	s.demandIsForTheControllerAlone()
	after := s.instances(s.launcher(launcher.Name))["org/model-a"]
	assert.Equal(t, before.Revision, after.Revision, "nothing has happened")
	assert.Equal(t, requester.UID, s.served("model-a", 1)[0].UID)
	s.answers("model-a")
}

func TestAnotherAuthorityDisturbsNobodyAndBindingGoesOn(t *testing.T) {
	s := newPool(t, nil)
	s.allReady()
	s.deploy(talker(), 1)
	answer := s.listen(&s.served("talker", 1)[0])
	launcher := s.poolPods()[cluster.NodeName(1)]
	before := authoritySecret(t)
	_, err := s.cluster.Kubectl(t.Context(), nil, "-n", system, "annotate", "--overwrite", "secret/"+authoritytest.SecretName, fmt.Sprintf("hotseat.dev/ca-rotation=%d", time.Now().UnixNano()))
	require.NoError(t, err)
	var trusted []byte
	s.eventually("there is another authority, and the one before is trusted still", func() bool {
		now := authoritySecret(t)
		trusted = now.Data[corev1.TLSCertKey]
		return !bytes.HasPrefix(trusted, firstPEM(before.Data[corev1.TLSCertKey])) && bytes.Contains(trusted, before.Data[corev1.TLSCertKey])
	})
	s.eventually("launchers and requesters of the namespace are told, and agents", func() bool {
		var launchers, agents, doors corev1.Secret
		var published corev1.ConfigMap
		err := errors.Join(
			s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "simulated-launcher-tls"}, &launchers),
			s.api.Get(t.Context(), client.ObjectKey{Namespace: system, Name: podmeta.AgentSecret}, &agents),
			s.api.Get(t.Context(), client.ObjectKey{Namespace: system, Name: podmeta.FrontDoorSecret}, &doors),
			s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: mtls.ConfigMap}, &published))
		return err == nil && bytes.Equal(launchers.Data[mtls.CAFile], trusted) && bytes.Equal(agents.Data[mtls.CAFile], trusted) && bytes.Equal(doors.Data[mtls.CAFile], trusted) && published.Data[mtls.CAFile] == string(trusted)
	})
	s.eventually("the API server is told whom to trust", func() bool {
		var hook admissionv1.ValidatingWebhookConfiguration
		return s.api.Get(t.Context(), client.ObjectKey{Name: "hotseat-controller-models"}, &hook) == nil && bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, trusted)
	})
	answer.goesOn()
	s.deploy(server{app: "next", node: 1}, 1) // while kubelets may not have brought the files yet
	s.served("next", 1)
	s.answers("next")
	s.deploy(server{app: "elsewhere", node: 2}, 1)
	s.served("elsewhere", 1)
	answer.goesOn()
	assert.Equal(t, launcher.UID, s.poolPods()[cluster.NodeName(1)].UID, "no launcher is replaced")
	newest, err := x509.ParseCertificate(mustPEM(t, trusted).Bytes)
	require.NoError(t, err)
	s.within(3*patience.Wait(), "the launcher shows a certificate of the newest authority, once the kubelet has brought it", func() bool {
		conn, err := s.cluster.Dial(t.Context(), "tcp", launcher.Status.PodIP+":8001")
		if err != nil {
			return false
		}
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		defer secured.Close()
		return secured.HandshakeContext(t.Context()) == nil && secured.ConnectionState().PeerCertificates[0].CheckSignatureFrom(newest) == nil
	})
	s.scale("next", 0)
	s.gone("next")
	s.scale("next", 1)
	s.served("next", 1)
	s.answers("next")
}

func TestNewNamespaceHasTheAuthorityBeforeItsFirstRequester(t *testing.T) {
	s := newBareSite(t)
	s.eventually("the ConfigMap is there", func() bool {
		var published corev1.ConfigMap
		err := s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: mtls.ConfigMap}, &published)
		return err == nil && published.Data[mtls.CAFile] == string(authoritySecret(t).Data[corev1.TLSCertKey])
	})
	s.addPool(nil)
	s.apply("examples/dual-pods/requesters.yaml") // whose Pods mount it
	s.served("model-a", 1)
	assert.NotContains(t, s.kubectl("get", "events", "--field-selector", "reason=FailedMount", "-o", "jsonpath={.items[*].message}"), fmt.Sprintf("configmap %q not found", mtls.ConfigMap))
}

func mustPEM(t *testing.T, text []byte) *pem.Block {
	t.Helper()
	block, _ := pem.Decode(text)
	require.NotNil(t, block)
	return block
}

func firstPEM(text []byte) []byte {
	block, _ := pem.Decode(text)
	return pem.EncodeToMemory(block)
}

func TestALauncherOfTheVersionBeforeIsServedWithItsToken(t *testing.T) {
	s := newSite(t) // whose launcher asks for a token, as all did
	s.apply("examples/dual-pods/requesters.yaml")
	s.served("model-a", 1)
	s.answers("model-a")
	dial := s.stranger(s.ns)
	ip := s.pod("launcher-node-1").Status.PodIP
	status, err := try(t, dial, nil, attempt{http.MethodGet, "http://" + ip + ":8001/v2/vllm/instances", ""}, "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status)
}
