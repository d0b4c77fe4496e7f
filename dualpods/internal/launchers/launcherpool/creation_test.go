package launcherpool

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestLauncherConfigWhoseLaunchersAreRefusedIsNotAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var again []client.ObjectKey
		pool := New(Options{Again: func(config client.ObjectKey) { again = append(again, config) }})
		config := configOf(t, plain)
		config.Spec.Population.Mode = v1alpha1.OnDemand
		key := client.ObjectKeyFromObject(config)
		available := func() metav1.Condition {
			f := &observation{config: config}
			f.refused, _ = pool.refused(key)
			return availableCondition(f, &v1alpha1.LauncherConfigStatus{})
		}
		assert.Equal(t, v1alpha1.ReasonNoneNeeded, available().Reason)

		quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("exceeded quota: pods"))
		pool.recordCreation(key, "node-1", quota)
		pool.recordCreation(key, "node-1", quota)
		assert.Equal(t, []client.ObjectKey{key}, again, "the status changes once")
		assert.Equal(t, v1alpha1.ReasonNotReady, available().Reason)
		assert.Equal(t, metav1.ConditionFalse, available().Status)
		assert.Contains(t, available().Message, "cannot create a launcher on node node-1: ")
		assert.Contains(t, available().Message, "exceeded quota: pods")

		pool.recordCreation(key, "node-1", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, "x"))
		assert.Len(t, again, 2)
		assert.Equal(t, v1alpha1.ReasonNoneNeeded, available().Reason)

		pool.recordCreation(key, "node-1", quota)
		_, left := pool.refused(key)
		assert.Equal(t, refusalCounts, left)
		<-time.After(refusalCounts)
		assert.Equal(t, v1alpha1.ReasonNoneNeeded, available().Reason, "nobody asks for it any more")
	})
}

func TestRefusalsOnSeveralNodesDoNotAlternateInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := 0
		pool := New(Options{Again: func(client.ObjectKey) { again++ }})
		key, other := client.ObjectKey{Namespace: "default", Name: "x"}, client.ObjectKey{Namespace: "default", Name: "y"}
		quota := errors.New("exceeded quota: pods")
		why := func(config client.ObjectKey) string { why, _ := pool.refused(config); return why }
		for range 3 {
			pool.recordCreation(key, "node-1", quota)
			pool.recordCreation(key, "node-2", quota)
		}
		pool.recordCreation(other, "node-0", quota)
		assert.Equal(t, 2, again, "once for each LauncherConfig")
		assert.Equal(t, "cannot create a launcher on node node-1: exceeded quota: pods", why(key))

		pool.recordCreation(key, "node-3", nil)
		assert.Equal(t, 2, again, "the status is the same")
		pool.recordCreation(key, "node-1", nil)
		assert.Equal(t, 3, again)
		assert.Equal(t, "cannot create a launcher on node node-2: exceeded quota: pods", why(key))

		<-time.After(refusalCounts / 2)
		pool.recordCreation(key, "node-3", quota)
		assert.Equal(t, 3, again, "node-2 comes first")
		<-time.After(refusalCounts / 2)
		assert.Equal(t, "cannot create a launcher on node node-3: exceeded quota: pods", why(key), "node-2 does not count any more")
		assert.Empty(t, why(other))
		pool.forgetDaemonSet(key)
		assert.Empty(t, pool.refusals)
	})
}

func TestMalformedLauncherConfigIsNotShortOfNodes(t *testing.T) {
	for _, mode := range []v1alpha1.PopulationMode{v1alpha1.PerNode, v1alpha1.OnDemand} {
		f := &observation{config: configOf(t, plain), problems: []podmeta.Problem{{Field: "spec.podTemplate", Message: "is wrong"}}}
		f.config.Spec.Population.Mode = mode
		c := availableCondition(f, &v1alpha1.LauncherConfigStatus{})
		assert.Equal(t, metav1.ConditionFalse, c.Status, mode)
		assert.Equal(t, v1alpha1.ReasonMalformedTemplate, c.Reason, mode)
		running := availableCondition(f, &v1alpha1.LauncherConfigStatus{Launchers: 1, Ready: 1})
		assert.Equal(t, v1alpha1.ReasonAllReady, running.Reason, "launchers of the template before go on")
	}
}
