//go:build cluster

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// modelsDomain is that of the host names by which the front door knows namespaces.
const modelsDomain = "models.test"

// chat asks the front door for an answer of a Model of the test's namespace.
func (s *site) chat(model string) (status int, text string) {
	s.t.Helper()
	s.awaitDoors(model)
	status, text, err := s.chatAt(s.t.Context(), s.frontDoor(), model)
	require.NoError(s.t, err)
	return status, text
}

// frontDoors returns the Pods of the front door that are ready.
func (s *site) frontDoors() (all []corev1.Pod) {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentFrontDoor}))
	for _, p := range pods.Items {
		if p.DeletionTimestamp.IsZero() && readyPod(&p) {
			all = append(all, p)
		}
	}
	return all
}

// awaitDoors waits until each front door knows a Model, if there is one of that name.
func (s *site) awaitDoors(model string) {
	s.t.Helper()
	if apierrors.IsNotFound(s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: model}, &v1alpha1.Model{})) {
		return
	}
	for _, pod := range s.frontDoors() {
		s.eventually(pod.Name+" knows "+model, func() bool {
			request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8000")+"/v1/models/"+model, nil)
			require.NoError(s.t, err)
			request.Host = s.ns + "." + modelsDomain
			transport := s.once(nil)
			defer transport.CloseIdleConnections()
			answer, err := transport.RoundTrip(request)
			if err != nil {
				return false
			}
			return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
		})
	}
}

// frontDoor is the address of the front door's Service.
func (s *site) frontDoor() string {
	s.t.Helper()
	var service corev1.Service
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: system, Name: "hotseat-frontdoor"}, &service))
	return net.JoinHostPort(service.Spec.ClusterIP, "80")
}

// chatAt asks the front door at an address.
func (s *site) chatAt(ctx context.Context, address, model string) (status int, text string, err error) {
	body, err := json.Marshal(map[string]any{"model": model, "messages": []map[string]string{{"role": "user", "content": "Who has the seat?"}}, "max_tokens": 8})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Host = s.ns + "." + modelsDomain
	request.Header.Set("Content-Type", "application/json")
	transport := s.once(nil)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(got), err
}

// chats asks a Model all the time, with some clients. stop returns how often there was each answer.
func (s *site) chats(model, address string, clients int) (stop func() (answers map[string]int)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	all := map[string]int{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				status, text, err := s.chatAt(s.t.Context(), address, model)
				answer := strconv.Itoa(status)
				if err != nil {
					answer = err.Error()
				} else if status != http.StatusOK {
					answer += " " + text
				}
				mu.Lock()
				all[answer]++
				mu.Unlock()
			}
		})
	}
	return func() map[string]int { cancel(); running.Wait(); return all }
}

func (s *site) model(name string) *v1alpha1.Model {
	s.t.Helper()
	var m v1alpha1.Model
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &m))
	return &m
}

// modelPods returns the Pods of a Model.
func (s *site) modelPods(model string) []corev1.Pod {
	s.t.Helper()
	var all corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &all, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelModel: model}))
	return all.Items
}

func TestModelAtZeroAnswersAChat(t *testing.T) {
	s := newPool(t, nil)
	s.onOneGPUOf(1, "0") // so that a replica on the node where the model sleeps gets its GPU
	s.onOneGPUOf(2, "0")
	require.NoError(t, s.applyModel(t.Context(), "examples/models/one.yaml"))
	s.eventually("the Model is observed", func() bool { return s.model("model-a").Status.ObservedGeneration > 0 })
	assert.Empty(t, s.modelPods("model-a"), "nobody has asked")

	status, text := s.chat("model-a")
	require.Equal(t, http.StatusOK, status, text)
	assert.Contains(t, text, `"model":"model-a"`)
	s.eventually("the status says that it serves", func() bool {
		m := s.model("model-a")
		return m.Status.Serving == "default (1)" && m.Status.ReadyReplicas == 1
	})

	s.eventually("it goes to zero", func() bool { return len(s.modelPods("model-a")) == 0 })
	s.eventually("it sleeps", func() bool { return s.model("model-a").Status.SleepsOn != "" })
	launchers := s.instancesOf("org/model-a")
	require.Len(t, launchers, 1)
	status, text = s.chat("model-a")
	require.Equal(t, http.StatusOK, status, text)
	assert.Equal(t, launchers, s.instancesOf("org/model-a"), "the sleeper has woken")
	status, text = s.chat("model-b")
	assert.Equal(t, http.StatusNotFound, status)
	assert.Contains(t, text, "did you mean model-a?")
}

// applyModel applies an example. Its ResourceProfiles are the cluster's.
func (s *site) applyModel(ctx context.Context, example string) error {
	return s.applyFile(ctx, s.ns, root(example))
}

// instancesOf returns the ids of the instances of a model on all launchers, with their nodes.
func (s *site) instancesOf(model string) (all []string) {
	s.t.Helper()
	var launchers corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &launchers, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentLauncher}))
	for _, pod := range launchers.Items {
		list, err := s.launcher(pod.Name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, i := range list.Instances {
			if i.Model == model {
				all = append(all, fmt.Sprintf("%s on %s, pid %d", i.InstanceID, pod.Spec.NodeName, i.PID))
			}
		}
	}
	return all
}

// engineImage loads the image of the stand-in for vLLM, for Pods that run it themselves.
func (s *site) engineImage() {
	s.t.Helper()
	require.NoError(s.t, s.cluster.LoadImage(s.t.Context(), "hotseat.local/enginesim:dev", images.Image{Files: map[string]string{"/usr/local/bin/vllm": root("bin/enginesim")}}))
}

// entry returns the status of an entry of a Model.
func (s *site) entry(model, name string) (of v1alpha1.ModelEntryStatus) {
	s.t.Helper()
	for _, e := range s.model(model).Status.Specs {
		if e.Name == name {
			of = e
		}
	}
	return of
}

func TestModelMovesOnFromHardwareThatThereIsNot(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	require.NoError(t, s.applyModel(t.Context(), "examples/models/several.yaml"))
	s.eventually("the standby serves", func() bool { return s.model("model-b").Status.Serving == "standby (1)" })
	status, text := s.chat("model-b")
	require.Equal(t, http.StatusOK, status, "nobody waits while a standby serves: %s", text)

	s.eventually("the second entry serves, and the standby is gone", func() bool {
		m := s.model("model-b")
		status, _ := s.chat("model-b") // demand
		assert.Equal(t, http.StatusOK, status)
		return m.Status.Serving == "usual (1)" && s.entry("model-b", "standby").Replicas == v1alpha1.ModelEntryReplicas{}
	})
	rare := s.entry("model-b", "rare")
	require.NotNil(t, rare.LastFailure)
	assert.Equal(t, "Unschedulable", rare.LastFailure.Reason)
	assert.Contains(t, rare.LastFailure.Message, "didn't match Pod's node affinity/selector", "the words of the scheduler")
	assert.NotNil(t, rare.BackoffUntil)
	assert.Equal(t, "rare", s.model("model-b").Status.BackingOff)
	s.eventually("the standby is back before the other goes", func() bool { return s.model("model-b").Status.Serving == "standby (1)" })
}

func TestModelThatLetsNoRequestWaitStartsOnARefusal(t *testing.T) {
	s := newPool(t, nil)
	s.declare(`
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  hold: {max: 0}
`)
	status, text := s.chat("llama")
	assert.Equal(t, http.StatusTooManyRequests, status, text)
	s.serves("llama", "default (1)")
	s.eventually("it answers", func() bool { status, _ := s.chat("llama"); return status == http.StatusOK })
}
