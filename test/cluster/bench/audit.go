package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// policy has the API server note every write to what the controller may write, but Leases, and which
// Pod got a node: when, by whom, and what a kubelet said of its containers.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  userGroups: [system:nodes]
  verbs: [patch]
  resources: [{group: "", resources: [pods/status]}]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: "", resources: [pods, pods/status, pods/binding]}, {group: discovery.k8s.io, resources: [endpointslices]}]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: hotseat.dev}, {group: apps}, {group: events.k8s.io}, {group: "", resources: [configmaps, namespaces, nodes, secrets, services, services/status]}]
- level: None
`

// write is one event of the audit log: a write that the API server has answered. Times are the API
// server's, to the microsecond.
// (https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/#audit-k8s-io-v1-Event)
type write struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	Agent  string `json:"userAgent"`
	Object struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
	Request  *struct {
		Status corev1.PodStatus `json:"status"`
	} `json:"requestObject"`
}

func (w *write) user() string {
	if w.Impersonated != nil {
		return w.Impersonated.Username
	}
	return w.User.Username
}

// controllerUser is whom the controller is to the API server.
const controllerUser = "system:serviceaccount:hotseat-system:hotseat-controller"

func (w *write) byController() bool { return w.user() == controllerUser }

// says tells whether a kubelet's write says that a container runs, or that the
// Pod is Ready.
func (w *write) says(what corev1.PodConditionType) bool {
	if w.Request == nil {
		return false
	}
	for _, c := range w.Request.Status.Conditions {
		if c.Type == what && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// schedules says that the write gives a Pod its node.
func (w *write) schedules() bool { return w.Verb == "create" && w.Object.Subresource == "binding" }

func (w *write) saysRunning() bool {
	if w.Request == nil {
		return false
	}
	for _, c := range w.Request.Status.ContainerStatuses {
		if c.State.Running != nil {
			return true
		}
	}
	return false
}

// readAudit reads the writes that came to something, in the order in which they
// were answered, once the log has one to the Pod named last that until takes.
func readAudit(ctx context.Context, path, last string, until func(*write) bool) ([]write, error) {
	for {
		writes, err := readWrites(path)
		if err != nil {
			return nil, err
		}
		for i := range writes {
			if writes[i].Object.Name == last && until(&writes[i]) {
				return writes, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the audit log never had the last write to Pod %s: %w", last, ctx.Err())
		case <-time.After(200 * time.Millisecond): // it is written each second
		}
	}
}

func readWrites(path string) (writes []write, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return writes, nil // what is being written now has no end yet
		}
		var w write
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)), &w); err != nil {
			return nil, fmt.Errorf("cannot read a line of the audit log: %w", err)
		}
		if w.Response.Code < 300 {
			writes = append(writes, w)
		}
	}
}
