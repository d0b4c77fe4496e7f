package cluster

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// deleted reports whether the API server answers that it does not have the node, which was
// there when the cluster became ready.
func (n *node) deleted() bool {
	var c Cluster
	if err := readJSON(n.Cluster.path("cluster.json"), &c); err != nil || len(c.NodePIDs) == 0 {
		return false // Up still waits, and tells which part has ended
	}
	api, err := apiFrom(n.path("kubeconfig"))
	if err != nil {
		return false
	}
	defer api.CloseIdleConnections()
	return errors.Is(api.get("/api/v1/nodes/"+n.name(), nil), errNotFound)
}

// registerAgain is called when kube-proxy has ended, and reports whether it runs again.
// kube-proxy ends when its node is deleted. registerAgain then also ends the kubelet,
// which registers a node only when it starts: the kubelet runs again, and the node comes
// back. A kubelet that [Cluster.Stop] has ended stays away, and so does the node. When
// such a node comes back late, kube-proxy ends once more, since it began without the
// addresses of the node.
func (n *node) registerAgain() bool {
	if !n.deleted() {
		cameBack := n.wasDeleted
		n.wasDeleted = false
		return cameBack
	}
	n.wasDeleted = true
	n.end(Kubelet)
	return true
}

// end ends a part of the node by SIGKILL, if it runs.
func (n *node) end(part string) {
	var pid int
	if err := readJSON(n.pidFile(PartOf(n.number, part)), &pid); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended since
	}
}

// endProxyWithNode ends kube-proxy each time that its node is deleted, where kube-proxy does not
// end by itself; see [Cluster.ProxyStays]. It runs as long as PID 1 does.
func (n *node) endProxyWithNode() {
	for was := false; ; {
		is := n.deleted()
		if is && !was {
			n.end(Proxy)
		}
		was = is
		<-time.After(deletedPause)
	}
}

// deletedPause is the time between two questions whether the node was deleted.
const deletedPause = time.Second

// apiFrom asks as the user of a file that [keys.kubeconfig] wrote.
func apiFrom(kubeconfig string) (*api, error) {
	var config struct {
		Clusters []struct {
			Cluster struct {
				CA []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := readJSON(kubeconfig, &config); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if len(config.Clusters) != 1 || len(config.Users) != 1 || !roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA) {
		return nil, fmt.Errorf("%s has no user of a cluster", kubeconfig)
	}
	return apiOf(roots, config.Users[0].User.Token), nil
}
