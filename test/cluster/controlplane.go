package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"time"
)

const (
	etcdURL       = "http://127.0.0.1:2379"
	podGroupsGate = "--feature-gates=GenericWorkload=true"
)

func (k *keeper) startControlPlane() error {
	for user, file := range map[string]string{userControllerManager: "controller-manager", userScheduler: "scheduler", userProxy: "proxy", userRouter: "router"} {
		if err := k.keys.kubeconfig(k.path("keys", file), Server, user); err != nil {
			return err
		}
	}
	if err := k.keys.kubeconfig(k.Kubeconfig(), fmt.Sprintf("https://127.0.0.1:%d", k.Port), userAdmin); err != nil {
		return err
	}
	return k.beginParts(k.etcd(), k.apiServer())
}

// startControllers starts what waits ten seconds for the API server, and then ends: it
// is to be called once that is ready.
func (k *keeper) startControllers() error {
	return k.beginParts(k.controllerManager(), k.scheduler())
}

func (k *keeper) beginParts(parts ...[]string) error {
	for _, args := range parts {
		if err := k.begin(k.ended, args[0], exec.Command(k.Kube, args...)); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) etcd() []string {
	return []string{
		"etcd", "--data-dir=" + k.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL, "--listen-peer-urls=http://127.0.0.1:0",
	}
}

func (k *keeper) apiServer() []string {
	args := []string{
		"kube-apiserver", "--etcd-servers=" + etcdURL, "--bind-address=" + control, "--advertise-address=" + control,
		"--tls-cert-file=" + k.keys.file("apiserver.crt"), "--tls-private-key-file=" + k.keys.file("apiserver.key"),
		"--client-ca-file=" + k.keys.file("ca.crt"), "--token-auth-file=" + k.keys.file("tokens.csv"),
		"--kubelet-client-certificate=" + k.keys.file("kubelet-client.crt"), "--kubelet-client-key=" + k.keys.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-key-file=" + k.keys.file("service-account.key"), "--service-account-signing-key-file=" + k.keys.file("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + services,
		"--enable-aggregator-routing=true", // to the Pods of an APIService: no kube-proxy is here
	}
	if k.PodGroups {
		args = append(args, "--runtime-config=scheduling.k8s.io/v1beta1=true", podGroupsGate)
	}
	if k.Nodes == 0 {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // nobody makes them
	}
	if k.Audit != "" {
		args = append(args, "--audit-policy-file="+k.Audit, "--audit-log-path="+k.AuditLog(),
			"--audit-log-mode=batch", "--audit-log-batch-max-wait=1s", "--audit-log-maxsize=10000") // in one file
	}
	return args
}

func (k *keeper) controllerManager() []string {
	return append(k.asUser("kube-controller-manager", "controller-manager"),
		"--cert-dir="+k.keys.dir, "--use-service-account-credentials=true",
		"--horizontal-pod-autoscaler-sync-period=1s", // for tests that wait for it
		"--service-account-private-key-file="+k.keys.file("service-account.key"), "--root-ca-file="+k.keys.file("ca.crt"))
}

func (k *keeper) scheduler() []string { return k.asUser("kube-scheduler", "scheduler") }

func (k *keeper) asUser(program, kubeconfig string) []string {
	config := k.path("keys", kubeconfig)
	args := []string{
		program, "--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--authentication-tolerate-lookup-failure=true", // the API server starts at the same time
		"--leader-elect=false", "--bind-address=127.0.0.1",
	}
	if k.PodGroups {
		args = append(args, podGroupsGate)
	}
	return args
}

// api asks the API server as one user.
type api struct {
	*http.Client
	token string
}

// newAPI asks as the administrator.
func newAPI(keys *keys) *api {
	roots := x509.NewCertPool()
	roots.AddCert(keys.ca)
	return apiOf(roots, keys.tokens[userAdmin])
}

func apiOf(roots *x509.CertPool, token string) *api {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	return &api{Client: &http.Client{Transport: transport, Timeout: 5 * time.Second}, token: token}
}

// errNotFound says that the API server has no such object.
var errNotFound = errors.New("the API server has no such object")

// get reads an object into a value, unless that is nil.
func (a *api) get(path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, Server+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	resp, err := a.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", path, errNotFound)
	default:
		return fmt.Errorf("%s: the API server answers %s", path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// nodeReady says why a node cannot be used yet.
func (a *api) nodeReady(number, gpus int) error {
	var node struct {
		Status struct {
			Conditions  []struct{ Type, Status, Message string }
			Allocatable map[string]string
		}
	}
	if err := a.get("/api/v1/nodes/"+NodeName(number), &node); err != nil {
		return err
	}
	said := errors.New("it does not say whether it is Ready")
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			said = nil
			if condition.Status != "True" {
				said = fmt.Errorf("its condition Ready is %s: %s", condition.Status, condition.Message)
			}
		}
	}
	if said != nil {
		return said
	}
	if have := node.Status.Allocatable["nvidia.com/gpu"]; gpus > 0 && have != strconv.Itoa(gpus) {
		return fmt.Errorf("it has %q of nvidia.com/gpu, and should have %d", have, gpus)
	}
	return nil
}
