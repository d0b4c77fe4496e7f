package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Config is what a cluster is made of.
type Config struct {
	Dir    string  `json:"dir"`              // of everything that the cluster writes; emptied at its end but for the logs
	Kube   string  `json:"kube"`             // the program that [Kube] gives
	Nodes  int     `json:"nodes"`            // 0: the control plane alone
	GPUs   int     `json:"gpus"`             // simulated, on each node
	Images []Image `json:"images,omitempty"` // that each node has from the beginning
}

// Image is a container image of one layer that holds one of our programs.
type Image struct {
	Name  string            `json:"name"`  // with a dotted domain and a tag: e2e.local/requester:v1
	Files map[string]string `json:"files"` // path in the image: file on this machine
	Entry []string          `json:"entry"` // entrypoint
	Env   []string          `json:"env,omitempty"`
}

// Slots is how many clusters can run on one machine at a time.
const Slots = 16

// network gives the addresses of a cluster.
type network struct{ slot int }

func (n network) second() int            { return 100 + n.slot }
func (n network) control() string        { return fmt.Sprintf("10.%d.0.1", n.second()) }
func (n network) machine() string        { return fmt.Sprintf("10.%d.0.254", n.second()) }
func (n network) node(number int) string { return fmt.Sprintf("10.%d.0.%d", n.second(), 10+number) }
func (n network) pods(number int) string { return fmt.Sprintf("10.%d.%d.0/24", n.second(), 10+number) }
func (n network) all() string            { return fmt.Sprintf("10.%d.0.0/16", n.second()) }
func (n network) link() string           { return fmt.Sprintf("hotseat%d", n.slot) }
func (n network) server() string         { return "https://" + n.control() + ":6443" }
func (n network) group() string          { return fmt.Sprintf("hotseat-cluster-%d", n.slot) }

// services is the range of service addresses; no cluster sees another's.
const services = "10.96.0.0/16"

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// Files of a cluster's folder.
const (
	configFile     = "config.json"
	stateFile      = "state.json"
	kubeconfigFile = "kubeconfig"
)

// State is what is told of a running cluster.
type State struct {
	Slot   int    `json:"slot"`
	Keeper int    `json:"keeper"`         // pid
	Init   int    `json:"init,omitempty"` // pid of the cluster's PID 1
	Ready  bool   `json:"ready"`
	Failed string `json:"failed,omitempty"`
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return os.Rename(fresh, path)
}

func (c Config) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c Config) log(name string) (*os.File, error) {
	if err := os.MkdirAll(c.path("log"), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of logs: %w", err)
	}
	return os.OpenFile(c.path("log", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
