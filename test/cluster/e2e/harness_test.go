//go:build cluster

// Package e2e shows dual pods at work on a real Kubernetes, from the files in
// deploy and examples. `make test-cluster` runs it.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const (
	token       = "sesame"
	system      = "hotseat-system"
	tokenSecret = "hotseat-launcher-token"
	prefix      = "e2e-" // of the namespaces of tests
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // the client's library complains without one
	if err := setUpLanes(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "cannot set dual pods up:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(strict{m}, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"))
}

// install installs the chart as tests have it, or upgrades it, with further values.
func (l *lane) install(ctx context.Context, values ...string) error {
	if os.Getenv("WRITE_AHEAD") == "0" {
		values = append([]string{"controller.writeAhead=false"}, values...)
	}
	values = append([]string{"frontDoor.externalScaler=true", "frontDoor.externalScalerAccess.plain=true"}, values...) // which earlier charts lack
	return l.installChart(ctx, root("deploy/chart"), values...)
}

func (l *lane) installChart(ctx context.Context, chart string, values ...string) error {
	args := []string{"upgrade", "--install", "hotseat", chart, "--namespace", system, "--create-namespace", "--wait", "--timeout", patience.Wait().String()}
	values = append([]string{"controller.replicas=1", "frontDoor.domain=" + modelsDomain}, values...)
	for _, v := range values {
		args = append(args, "--set", v)
	}
	_, err := l.cluster.Helm(ctx, args...)
	return err
}

// root is a path of the repository.
func root(path string) string { return filepath.Join("..", "..", "..", path) }

func (l *lane) applyFile(ctx context.Context, namespace, path string) error {
	args := []string{"apply", "--server-side", "-f", path}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	_, err := l.cluster.Kubectl(ctx, nil, args...)
	return err
}

func (l *lane) ensureNamespace(ctx context.Context, name string) error {
	err := l.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: tokenSecret, Labels: map[string]string{podmeta.LabelLauncherConfig: "simulated"}, // without which the controller does not see it
	}, StringData: map[string]string{"token": token}}
	if err := l.api.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// site is a namespace with launchers, for one test.
type site struct {
	*lane
	t       *testing.T
	ns      string
	clients map[types.UID]*launcherclient.Client // of launcher Pods
}

// newBareSite makes a namespace.
func newBareSite(t *testing.T) *site {
	s := &site{lane: laneOf(t), t: t, ns: fmt.Sprintf(prefix+"%d", time.Now().UnixNano()), clients: map[types.UID]*launcherclient.Client{}}
	require.NoError(t, s.ensureNamespace(t.Context(), s.ns))
	t.Cleanup(s.remove)
	s.eventually("the namespace can have Pods", func() bool { // the controller-manager makes the account, and may be starting
		return s.api.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "default"}, &corev1.ServiceAccount{}) == nil
	})
	return s
}

// newSite makes a namespace, and a launcher on the first node.
func newSite(t *testing.T) *site {
	s := newBareSite(t)
	s.addLauncher(1)
	return s
}

// remove deletes the namespace and waits until its Pods are gone, which nobody
// helps them with. The namespace itself goes some seconds later: the end of the
// tests waits for that.
func (s *site) remove() {
	ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
	defer stop()
	if s.t.Failed() {
		s.describe(ctx)
	}
	assert.NoError(s.t, client.IgnoreNotFound(s.api.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})))
	assert.NoError(s.t, s.api.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(s.ns)))
	assert.NoError(s.t, s.api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.ns)))
	for {
		var left corev1.PodList
		if err := s.api.List(ctx, &left, client.InNamespace(s.ns)); err == nil && len(left.Items) == 0 {
			return
		}
		if ctx.Err() != nil {
			assert.Fail(s.t, "the Pods of the namespace do not go away")
			s.describe(context.Background())
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// strict runs the tests, and fails when a namespace of theirs is left in a lane.
type strict struct{ *testing.M }

// Run implements goleak's TestingM.
func (m strict) Run() int {
	code := m.M.Run()
	ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
	defer stop()
	for _, l := range lanes {
		if err := l.emptied(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return cmp.Or(code, m.rights(ctx))
}

// emptied waits until no namespace of a test is left.
func (l *lane) emptied(ctx context.Context) error {
	for {
		var left []string
		var list corev1.NamespaceList
		err := l.api.List(ctx, &list)
		for _, ns := range list.Items {
			if strings.HasPrefix(ns.Name, prefix) {
				left = append(left, ns.Name)
			}
		}
		if err == nil && len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("namespaces of cluster %s do not go away: %q: %w", l.cluster.Name, left, errors.Join(err, context.Cause(ctx)))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// rights fails when the controller's are not what it takes.
func (m strict) rights(ctx context.Context) int {
	all := withLong && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if err := checkRights(ctx, all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// describe logs what a person would look at first.
func (s *site) describe(ctx context.Context) {
	for _, args := range [][]string{
		{"-n", s.ns, "get", "pods", "-o", "yaml"}, {"-n", s.ns, "get", "events"},
		{"-n", system, "logs", "deployment/hotseat-controller", "--tail=60"},
	} {
		out, err := s.cluster.Kubectl(ctx, nil, args...)
		s.t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (s *site) apply(example string) {
	s.t.Helper()
	require.NoError(s.t, s.applyFile(s.t.Context(), s.ns, root(example)))
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.cluster.Kubectl(s.t.Context(), nil, append([]string{"-n", s.ns}, args...)...)
	require.NoError(s.t, err)
	return string(out)
}

func (s *site) ready(object string) {
	s.t.Helper()
	s.kubectl("wait", "--for=condition=Ready", object, "--timeout="+patience.Wait().String())
}

func (s *site) within(limit time.Duration, what string, so func() bool) {
	s.t.Helper()
	require.Eventually(s.t, so, limit, 100*time.Millisecond, what)
}

// eventually waits until so says yes.
func (s *site) eventually(what string, so func() bool) {
	s.t.Helper()
	s.within(patience.Wait(), what, so)
}

// pods are those with that value of the label app, which are not being deleted.
func (s *site) pods(app string) []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{"app": app}))
	var living []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp.IsZero() {
			living = append(living, p)
		}
	}
	return living
}

// gone waits until there is no Pod of that app, being deleted or not.
func (s *site) gone(app string) {
	s.t.Helper()
	s.eventually("no Pod of "+app+" is left", func() bool {
		var list corev1.PodList
		return s.api.List(s.t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{"app": app}) == nil && len(list.Items) == 0
	})
}

// served waits until n Pods of the app are ready, and gives them.
func (s *site) served(app string, n int) []corev1.Pod {
	s.t.Helper()
	var ready []corev1.Pod
	s.eventually(fmt.Sprintf("%d Pods of %s are ready", n, app), func() bool {
		ready = nil
		for _, p := range s.pods(app) {
			if readyPod(&p) {
				ready = append(ready, p)
			}
		}
		return len(ready) == n
	})
	return ready
}

func readyPod(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (s *site) scale(app string, n int) {
	s.t.Helper()
	s.kubectl("scale", "deployment/"+app, fmt.Sprintf("--replicas=%d", n))
}

// pod reads a Pod.
func (s *site) pod(name string) *corev1.Pod {
	s.t.Helper()
	var pod corev1.Pod
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &pod))
	return &pod
}

// records are those on a launcher Pod.
func (s *site) records(launcher string) []podmeta.Binding {
	s.t.Helper()
	bindings, problems := podmeta.ReadBindings(s.pod(launcher))
	assert.Empty(s.t, problems)
	return bindings
}

// launcher speaks to a launcher as the controller does.
func (s *site) launcher(name string) *launcherclient.Client {
	s.t.Helper()
	pod := s.pod(name)
	if c, ok := s.clients[pod.UID]; ok {
		return c
	}
	scheme, transport := "http://", &http.Transport{DialContext: s.cluster.Dial}
	s.t.Cleanup(transport.CloseIdleConnections)
	if secretOf(pod) != "" {
		scheme, transport.TLSClientConfig = "https://", asController(s.t, mtls.LauncherName(s.ns, pod.Labels[podmeta.LabelLauncherConfig]))
	}
	c, err := launcherclient.New(launcherclient.Options{
		Server: scheme + pod.Status.PodIP + ":8001", Token: token, HTTPClient: &http.Client{Transport: transport},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	s.clients[pod.UID] = c
	return c
}

// instances are those of a launcher, by model.
func (s *site) instances(c *launcherclient.Client) map[string]launcherapi.Instance {
	s.t.Helper()
	list, err := c.List(s.t.Context())
	require.NoError(s.t, err)
	all := map[string]launcherapi.Instance{}
	for _, i := range list.Instances {
		require.NotContains(s.t, all, i.Model, "one instance of each model")
		all[i.Model] = i
	}
	return all
}

// once is for one call to an address of the cluster's network. CloseIdleConnections ends
// its dial: net/http goes on with that after the end of the call, and an address that no
// Pod has any more answers nothing for minutes.
func (l *lane) once(config *tls.Config) *http.Transport {
	return &http.Transport{DialContext: l.cluster.Dial, DisableKeepAlives: true, TLSClientConfig: config}
}

// ask sends a completion to an address of the cluster's network, and gives the
// model that answered; empty when none did.
func (s *site) ask(address, model string) (string, error) {
	return s.askOnce(s.t.Context(), address, model)
}

// connectTime is how long a client waits for a connection. Until kube-proxy has heard
// that a Pod is gone a Service leads there, too, and nobody answers what is sent to an
// address that no Pod has any more: a client that waits for such a connection waits
// for minutes, one that makes another does not.
const connectTime = 3 * time.Second

func (l *lane) askOnce(ctx context.Context, address, model string) (string, error) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, stop := context.WithTimeout(ctx, connectTime)
		defer stop()
		return l.cluster.Dial(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	// At another temperature real vLLM on a CPU compiles its sampler at the first request, which takes
	// from half a minute on two quiet cores to more than patience.Wait on busy ones.
	body := fmt.Sprintf(`{"model":%q,"prompt":"Hello","max_tokens":4,"temperature":0}`, model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", bytes.NewBufferString(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport, Timeout: patience.Wait()}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", resp.StatusCode, answer)
	}
	_, rest, _ := bytes.Cut(answer, []byte(`"model":"`))
	answered, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(answered), nil
}

// address is where a Service is reached.
func (s *site) address(service string) string {
	s.t.Helper()
	var found corev1.Service
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: service}, &found))
	return found.Spec.ClusterIP + ":8000"
}

// answers says that the app's model answers through the app's Service.
func (s *site) answers(app string) {
	s.t.Helper()
	address := s.address(app)
	var got string
	var err error
	s.eventually(app+" answers through its Service", func() bool { // kube-proxy follows the Pod's readiness in a moment
		got, err = s.ask(address, "org/"+app)
		return err == nil
	})
	assert.Equal(s.t, "org/"+app, got)
}

// onOneGPU leaves one GPU of the first node to the test's Pods: another Pod has
// the rest.
func (s *site) onOneGPU() {
	s.t.Helper()
	s.onOneGPUOf(1, "0")
}

// onOneGPUOf leaves one GPU of a node to the test's Pods. Another Pod has the rest,
// and asks for so much CPU.
func (s *site) onOneGPUOf(node int, cpu string) {
	s.t.Helper()
	var pod corev1.Pod
	pod.Namespace, pod.Name = s.ns, "other-gpus"
	if node != 1 {
		pod.Name += "-" + cluster.NodeName(node)
	}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(node)}
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	pod.Spec.Containers = []corev1.Container{{
		Name: "holder", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever,
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{podmeta.ResourceGPU: quantity(s.cluster.GPUs - 1)},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		},
	}}
	require.NoError(s.t, s.api.Create(s.t.Context(), &pod))
	s.ready("pod/" + pod.Name)
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
