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
