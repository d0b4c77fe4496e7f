// Package podresourcesapi is what the controller asks the agent of a node, which runs the
// program podresources: which devices the kubelet of the node has given to whom.
//
//	GET /v1/pods
//
// answers 200 with [Pods], or a [Problem]: 403 (no client certificate), 502 (the kubelet does
// not answer).
package podresourcesapi

// Where and how to ask.
const (
	Path        = "/v1/pods"
	DefaultPort = 8002
	// MaxAnswer is how many bytes an answer may have: some thousand containers.
	MaxAnswer = 1 << 20

	ProblemContentType = "application/problem+json"
)

// Pods are those on the node that have devices, in the order in which the kubelet
// tells them.
type Pods struct {
	Pods []Pod `json:"pods"`
}

// Pod is one of them. The kubelet tells no UID.
type Pod struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Containers []Container `json:"containers"` // those that have devices
}

// Container is one of a Pod's.
type Container struct {
	Name string `json:"name"`
	// Devices are the ids that the device plugin gave its devices, by the name of
	// the resource, such as nvidia.com/gpu.
	Devices map[string][]string `json:"devices"`
}

// Problem is an answer that is no success, as RFC 9457 has it.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"` // for people
}
