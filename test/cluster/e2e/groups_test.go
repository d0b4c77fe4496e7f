//go:build cluster

package e2e

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const exampleGroups = "examples/groups/prefill-decode.yaml"

func (s *site) modelServing(name string) *v1alpha1.ModelServing {
	s.t.Helper()
	var serving v1alpha1.ModelServing
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &serving))
	return &serving
}

// runs waits until all groups of a ModelServing run, by the generation of its spec.
func (s *site) runs(name string, groups int) *v1alpha1.ModelServing {
	s.t.Helper()
	var last *v1alpha1.ModelServing
	s.eventually(fmt.Sprintf("%d groups of %s run", groups, name), func() bool {
		last = s.modelServing(name)
		waits := func(g v1alpha1.ServingGroupStatus) bool { return g.State != v1alpha1.GroupRunning }
		return last.Status.ObservedGeneration == last.Generation && len(last.Status.Groups) == groups && !slices.ContainsFunc(last.Status.Groups, waits)
	})
	return last
}

// left counts the objects of a kind that have the labels of the ModelServing.
func (s *site) left(list client.ObjectList, items func() int) int {
	s.t.Helper()
	require.NoError(s.t, s.api.List(s.t.Context(), list, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "llama"}))
	return items()
}

// leftOfGroups counts the Pods, Services and EndpointSlices of the ModelServing.
func (s *site) leftOfGroups() int {
	s.t.Helper()
	var pods corev1.PodList
	var services corev1.ServiceList
	var found discoveryv1.EndpointSliceList
	return s.left(&pods, func() int { return len(pods.Items) }) + s.left(&services, func() int { return len(services.Items) }) + s.left(&found, func() int { return len(found.Items) })
}

func (s *site) revisions() int {
	s.t.Helper()
	var all appsv1.ControllerRevisionList
	return s.left(&all, func() int { return len(all.Items) })
}

// boundTo returns the launcher Pod that has the record of a requester, and the record's instance.
func (s *site) boundTo(requester string) (launcher *corev1.Pod, instance launcherapi.Instance) {
	s.t.Helper()
	uid := s.pod(requester).UID
	var launchers corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &launchers, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentLauncher}))
	for i := range launchers.Items {
		records, _ := podmeta.ReadBindings(&launchers.Items[i])
		for _, record := range records {
			if record.RequesterUID == uid {
				instance, err := s.launcher(launchers.Items[i].Name).Get(s.t.Context(), record.Instance)
				require.NoError(s.t, err)
				return &launchers.Items[i], instance
			}
		}
	}
	require.Fail(s.t, "no launcher has a record of "+requester)
	return nil, instance
}

// leadsToLauncher checks that the slice of an entry leads to the instance that the entry is bound
// to, and returns the address.
func (s *site) leadsToLauncher(entry string) (address string) {
	s.t.Helper()
	launcher, instance := s.boundTo(entry)
	want := net.JoinHostPort(launcher.Status.PodIP, strconv.Itoa(instance.Port))
	s.eventually("the slice of "+entry+" leads to "+want, func() bool { return slices.Equal([]string{want}, s.addressesOf(entry)) })
	return want
}

// addressesOf returns the addresses with ports to which the slices of a Service lead.
func (s *site) addressesOf(service string) (all []string) {
	s.t.Helper()
	var found discoveryv1.EndpointSliceList
	require.NoError(s.t, s.api.List(s.t.Context(), &found, client.InNamespace(s.ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	for _, slice := range found.Items {
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				all = append(all, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return all
}

func TestGroupOfTwoRolesIsServedAndGoesWhole(t *testing.T) {
	s := newPool(t, nil)
	s.apply(exampleGroups)
	s.runs("llama", 1)
	for _, role := range []string{"prefill", "decode"} {
		entry := "llama-0-" + role + "-0-0"
		pod := s.pod(entry)
		assert.Equal(t, []string{"llama", "llama-0", role, role + "-0", "true"}, []string{
			pod.Labels[podmeta.LabelServing], pod.Labels[podmeta.LabelServingGroup], pod.Labels[podmeta.LabelServingRole], pod.Labels[podmeta.LabelServingRoleID], pod.Labels[podmeta.LabelServingEntry],
		})
		assert.Contains(t, podmeta.ProgramOf(pod).Container.Env, corev1.EnvVar{Name: podmeta.EnvEntryAddress, Value: entry + "." + s.ns + ".svc"})
		answered, err := s.ask(s.leadsToLauncher(entry), "org/llama")
		require.NoError(t, err)
		assert.Equal(t, "org/llama", answered)
	}
	assert.Equal(t, "1", s.kubectl("get", "ms/llama", "-o", "jsonpath={.status.readyReplicas}"))

	// A role without GPUs is added: its Pod is a plain one. The group is created again.
	prefill := s.pod("llama-0-prefill-0-0").UID
	s.kubectl("patch", "ms/llama", "--type=json", `-p=[{"op":"add","path":"/spec/template/roles/-","value":{"name":"router","entryTemplate":{"spec":{"terminationGracePeriodSeconds":0,"containers":[
		{"name":"router","image":"hotseat.local/requester:dev","imagePullPolicy":"IfNotPresent","args":["wait"],"ports":[{"name":"http","containerPort":8080}]}]}}}}]`)
	s.eventually("the group is updated", func() bool {
		serving := s.modelServing("llama")
		status := serving.Status
		return status.ObservedGeneration == serving.Generation && status.UpdatedReplicas == 1 && status.ReadyReplicas == 1 && status.CurrentRevision == status.Revision && s.revisions() == 1
	})
	router := s.pod("llama-0-router-0-0")
	assert.Len(t, router.Spec.Containers[0].Env, 3)
	s.eventually("the slice of the router leads to itself", func() bool {
		return slices.Equal([]string{router.Status.PodIP + ":8080"}, s.addressesOf(router.Name))
	})
	assert.NotEqual(t, prefill, s.pod("llama-0-prefill-0-0").UID)

	// A Service that somebody else changes is repaired. A Service without a selector has two IP families,
	// even if the cluster has only one.
	s.kubectl("patch", "service/"+router.Name, "--type=merge", `-p={"spec":{"publishNotReadyAddresses":false,"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4"],"selector":{"modelserving.hotseat.dev/name":"llama"}}}`)
	s.eventually("the Service is as it was, and leads to the router alone", func() bool {
		is := s.kubectl("get", "service/"+router.Name, "--ignore-not-found", "-o", "jsonpath={.spec.publishNotReadyAddresses}{.spec.selector}")
		return is == "true" && slices.Equal([]string{router.Status.PodIP + ":8080"}, s.addressesOf(router.Name))
	})
	s.kubectl("label", "service/"+router.Name, podmeta.LabelServingRole+"-")
	s.eventually("the Service has its label", func() bool {
		return s.kubectl("get", "service/"+router.Name, "-o", "jsonpath={.metadata.labels.modelserving\\.hotseat\\.dev/role}") == "router"
	})
	s.eventually("an Event says so", func() bool {
		return slices.Contains(s.events("llama"), "somebody else has changed Service "+router.Name+", and the controller has undone it: change the ModelServing instead")
	})

	// Without groups nothing is left but the revision; a group that comes back is served again.
	s.kubectl("scale", "ms/llama", "--replicas=0")
	s.eventually("the group is gone", func() bool { return s.leftOfGroups() == 0 && s.revisions() == 1 })
	s.kubectl("scale", "ms/llama", "--replicas=1")
	s.runs("llama", 1)
	_, err := s.ask(s.leadsToLauncher("llama-0-prefill-0-0"), "org/llama")
	require.NoError(t, err)

	s.kubectl("delete", "ms/llama", "--timeout="+patience.Wait().String())
	s.eventually("all is gone", func() bool { return s.leftOfGroups()+s.revisions() == 0 })
}

func TestModelServingOfTheSameNameGetsPodsOfItsOwn(t *testing.T) {
	s := newPool(t, nil)
	s.apply(exampleGroups)
	first := s.runs("llama", 1)
	uids := map[types.UID]bool{}
	for _, role := range []string{"prefill", "decode"} {
		uids[s.pod("llama-0-"+role+"-0-0").UID] = true
	}
	s.kubectl("delete", "ms/llama", "--wait=false")
	s.eventually("the first one is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(first), &v1alpha1.ModelServing{}))
	})
	s.apply(exampleGroups)
	second := s.runs("llama", 1)
	require.NotEqual(t, first.UID, second.UID)
	for _, role := range []string{"prefill", "decode"} {
		pod := s.pod("llama-0-" + role + "-0-0")
		assert.False(t, uids[pod.UID], "%s is another Pod", pod.Name)
		assert.Equal(t, second.UID, podmeta.ServingOf(pod).UID)
		_, err := s.ask(s.leadsToLauncher(pod.Name), "org/llama")
		require.NoError(t, err)
	}

	// A Pod that somebody made with a name of the second group is left alone.
	theirs := &corev1.Pod{}
	theirs.Namespace, theirs.Name = s.ns, "llama-1-prefill-0-0"
	theirs.Spec.TerminationGracePeriodSeconds = new(int64)
	theirs.Spec.Containers = []corev1.Container{{Name: "theirs", Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever, Args: []string{"wait"}}}
	require.NoError(t, s.api.Create(t.Context(), theirs))
	s.kubectl("scale", "ms/llama", "--replicas=2")
	s.eventually("the second group has failed", func() bool {
		groups := s.modelServing("llama").Status.Groups
		return len(groups) == 2 && groups[1].State == v1alpha1.GroupFailed && groups[1].Reason == v1alpha1.ReasonNameTaken
	})
	s.eventually("an Event tells", func() bool { return s.event(second.UID, "was not created for this ModelServing") })
	s.kubectl("scale", "ms/llama", "--replicas=1")
	s.runs("llama", 1)
	assert.Equal(t, theirs.UID, s.pod(theirs.Name).UID)
}
