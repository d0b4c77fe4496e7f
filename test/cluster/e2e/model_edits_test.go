//go:build cluster

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// profiles are the ResourceProfiles of the Models of tests.
const profiles = `
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: e2e-gpu}
spec:
  launcherConfigName: simulated
  limits: {nvidia.com/gpu: 1}
---
apiVersion: hotseat.dev/v1alpha1
kind: ResourceProfile
metadata: {name: e2e-processor}
spec:
  requests: {cpu: 10m}
  limits: {memory: 256Mi}
  images: {VLLM: 'hotseat.local/enginesim:dev'}
---
`

// declare applies Models as people do, with the ResourceProfiles of tests.
func (s *site) declare(models string) {
	s.t.Helper()
	_, err := s.cluster.Kubectl(s.t.Context(), strings.NewReader(profiles+models), "-n", s.ns, "apply", "-f", "-")
	require.NoError(s.t, err)
}

// serves waits until these entries of a Model serve, such as "a (1), b (2)".
func (s *site) serves(model, entries string) {
	s.t.Helper()
	s.eventually(model+" is served by "+entries, func() bool { return s.model(model).Status.Serving == entries })
}

// deploymentOf returns the Deployment of an entry.
func (s *site) deploymentOf(name string) *appsv1.Deployment {
	s.t.Helper()
	var d appsv1.Deployment
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &d))
	return &d
}

// replicasOf returns how many replicas a Deployment is to have.
func (s *site) replicasOf(name string) int32 { return *s.deploymentOf(name).Spec.Replicas }

// isAbsent reports whether there is no object of that name and kind.
func (s *site) isAbsent(name string, kind client.Object) bool {
	s.t.Helper()
	err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, kind)
	require.NoError(s.t, client.IgnoreNotFound(err))
	return apierrors.IsNotFound(err)
}

// kubectlEdit runs `kubectl edit` with an expression of sed as the editor.
func (s *site) kubectlEdit(object, expression string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.cluster.Bin(), "kubectl"), "--kubeconfig="+s.cluster.Kubeconfig(), "-n", s.ns, "edit", object)
	cmd.Env = append(os.Environ(), "KUBE_EDITOR=sed -i "+expression)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// entryConfig returns the arguments and the environment of an entry's InferenceServerConfig.
func (s *site) entryConfig(name string) (args []string, env map[string]string) {
	s.t.Helper()
	var config v1alpha1.InferenceServerConfig
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &config))
	env = map[string]string{}
	for _, v := range config.Spec.ModelServerConfig.Env {
		env[v.Name] = v.Value
	}
	return config.Spec.ModelServerConfig.Args, env
}

const twoEntries = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4]
  minReplicas: 1
  env: {OF_BOTH: spec, OF_ONE: spec}
specs:
- name: a
  args: [--gpu-memory-utilization=0.3]
  env: {OF_BOTH: entry}
  unsetEnv: [OF_ONE]
- name: b
`

func TestModelIsEditedAndDeleted(t *testing.T) {
	s := newPool(t, nil)
	s.declare(twoEntries)
	s.serves("llama", "a (1), b (1)")
	args, env := s.entryConfig("llama-a")
	assert.Equal(t, []string{"org/llama", "--gpu-memory-utilization=0.3", "--served-model-name", "llama"}, args)
	assert.Equal(t, map[string]string{"OF_BOTH": "entry"}, env)
	args, env = s.entryConfig("llama-b")
	assert.Equal(t, []string{"org/llama", "--gpu-memory-utilization=0.4", "--served-model-name", "llama"}, args)
	assert.Equal(t, map[string]string{"OF_BOTH": "spec", "OF_ONE": "spec"}, env)

	podsOf := func() map[string]string {
		all := map[string]string{}
		for _, p := range s.modelPods("llama") {
			all[string(p.UID)] = p.Labels["hotseat.dev/model-entry"]
		}
		return all
	}
	before := podsOf()
	s.declare(twoEntries)
	s.kubectlEdit("mdl/llama", "s/utilization=0.3/utilization=0.35/")
	s.eventually("the Pod of a is replaced", func() bool {
		now := podsOf()
		kept := maps.Clone(now)
		maps.DeleteFunc(kept, func(uid, _ string) bool { return before[uid] == "" })
		return len(now) == 2 && slices.Equal(slices.Collect(maps.Values(kept)), []string{"b"})
	})
	s.serves("llama", "a (1), b (1)")
	args, env = s.entryConfig("llama-a")
	assert.Contains(t, args, "--gpu-memory-utilization=0.35")
	assert.Equal(t, map[string]string{"OF_BOTH": "entry"}, env, "unsetEnv is kept by apply and edit")
	s.eventually("nothing sleeps of the edition before", func() bool { return len(s.instancesOf("org/llama")) == 2 })

	s.declare(strings.Replace(twoEntries, "- name: b\n", "", 1))
	s.eventually("the objects of b are gone, its InferenceServerConfig last", func() bool {
		if !s.isAbsent("llama-b", &v1alpha1.InferenceServerConfig{}) {
			return false
		}
		assert.True(t, s.isAbsent("llama-b", &appsv1.Deployment{}))
		assert.NotContains(t, slices.Collect(maps.Values(podsOf())), "b")
		return true
	})
	s.serves("llama", "a (1)")
	s.kubectl("delete", "mdl/llama") // it waits
	assert.True(t, s.isAbsent("llama-a", &v1alpha1.InferenceServerConfig{}))
	assert.True(t, s.isAbsent("llama-a", &appsv1.Deployment{}))
	assert.Empty(t, s.modelPods("llama"))
	s.eventually("nothing of it sleeps on the launchers", func() bool { return len(s.instancesOf("org/llama")) == 0 })
}

func TestModelLeavesDeploymentsOfOthersAlone(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	s.kubectl("create", "deployment", "llama-a", "--image=hotseat.local/requester:dev", "--replicas=0")
	theirs := s.deploymentOf("llama-a")
	s.declare(strings.Replace(preferred, "WORDS", "--seed=1", 1))
	s.eventually("the Model says so", func() bool {
		c := meta.FindStatusCondition(s.model("llama").Status.Conditions, v1alpha1.ConditionAccepted)
		return c != nil && c.Status == "False" && strings.Contains(c.Message, "Deployment llama-a is not of this Model, and is left alone")
	})
	s.answersFrom("llama", "b (1)")
	assert.Equal(t, theirs.Generation, s.deploymentOf("llama-a").Generation)
	assert.Equal(t, theirs.Labels, s.deploymentOf("llama-a").Labels)
	s.kubectl("delete", "deployment/llama-a")
	s.kubectlEdit("mdl/llama", "s/seed=1/seed=2/") // the controller would look by itself after 30 s
	s.eventually("nothing is wrong any more", func() bool {
		return meta.IsStatusConditionTrue(s.model("llama").Status.Conditions, v1alpha1.ConditionAccepted)
	})
	s.eventually("a serves", func() bool { s.chat("llama"); return s.model("llama").Status.Serving == "a (1)" })
}

// eventsOf returns the messages of the Events about a Model with a reason.
func (s *site) eventsOf(model, reason string) string {
	s.t.Helper()
	return s.kubectl("get", "events", "--field-selector=involvedObject.name="+model+",reason="+reason, "-o=jsonpath={.items[*].note}{.items[*].message}")
}

func TestModeOfAModelSaysWhoScalesIt(t *testing.T) {
	s := newPool(t, nil)
	s.declare(twoEntries)
	s.serves("llama", "a (1), b (1)")
	s.kubectl("scale", "deployment/llama-a", "--replicas=2")
	s.eventually("an Event tells it", func() bool {
		return strings.Contains(s.eventsOf("llama", "ScaledByOthers"), "scaled from 1 to 2 replicas by somebody else")
	})
	s.eventually("it is undone", func() bool { return s.replicasOf("llama-a") == 1 })
	was := s.deploymentOf("llama-a").Spec
	s.kubectl("patch", "deployment/llama-a", "--type=merge", "-p", `{"spec": {"template": {"metadata": {"labels": {"mine": "x"}}}}}`)
	s.eventually("an Event tells that the Pod template was edited", func() bool {
		return strings.Contains(s.eventsOf("llama", "EditedByOthers"), "somebody else has edited the Pod template of Deployment llama-a")
	})
	assert.Equal(t, was, s.deploymentOf("llama-a").Spec, "it is put back")

	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"autoscaling": {"mode": "Off"}}}`)
	s.eventually("the mode is observed", func() bool {
		m := s.model("llama")
		return m.Status.ObservedGeneration == m.Generation && strings.Contains(s.entry("llama", "a").Message, "Off")
	})
	s.kubectl("scale", "deployment/llama-a", "--replicas=2")
	s.serves("llama", "a (2), b (1)")
	assert.EqualValues(t, 2, s.replicasOf("llama-a"))
	_, err := s.cluster.Kubectl(t.Context(), nil, "-n", s.ns, "scale", "mdl/llama", "--replicas=1")
	require.ErrorContains(t, err, "means something only in the mode External")

	s.kubectl("patch", "mdl/llama", "--type=merge", "-p", `{"spec": {"autoscaling": {"mode": "External"}, "replicas": 3, "minReplicas": 0, "maxReplicas": 2}}`)
	s.serves("llama", "a (2), b (1)")
	s.kubectl("scale", "mdl/llama", "--replicas=1")
	s.serves("llama", "a (1)")
	s.kubectl("scale", "mdl/llama", "--replicas=3")
	s.serves("llama", "a (2), b (1)")
	s.kubectl("scale", "mdl/llama", "--replicas=0")
	s.eventually("all Pods are gone", func() bool { return len(s.modelPods("llama")) == 0 })
	assert.Equal(t, "0", s.kubectl("get", "mdl/llama", "-o=jsonpath={.status.replicas}"))
}
