//go:build cluster && clusterlong

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// The moments in the end of a Model's last replica at which a request comes.
const (
	labelGoes = "its label goes"
	podEnds   = "its Pod is being deleted"
	podIsGone = "its Pod is gone"
)

// TestRequestWhileTheLastReplicaGoesIsAnswered sends 18 requests, each at a moment at which a Model goes to zero.
func TestRequestWhileTheLastReplicaGoesIsAnswered(t *testing.T) {
	s := newPool(t, nil)
	var running sync.WaitGroup
	for n := range 3 { // one GPU is left for a replica that comes before the last one is gone
		model := fmt.Sprintf("m%d", n)
		s.declare(fmt.Sprintf("\napiVersion: hotseat.dev/v1alpha1\nkind: Model\nmetadata: {name: %[1]s}\nspec: {url: 'hf://org/%[1]s', resourceProfile: e2e-gpu, args: [--gpu-memory-utilization=0.4], scaleDownDelaySeconds: 0}\n", model))
		s.awaitDoors(model)
		door := s.frontDoor()
		running.Go(func() { s.asksAtTheEnd(door, model, 6) })
	}
	running.Wait()
}

// asksAtTheEnd asks a Model each time that its last replica goes.
func (s *site) asksAtTheEnd(door, model string, rounds int) {
	last, moments := &lastReplica{}, make(chan string, 1000)
	stop := s.followAll(func(p *corev1.Pod, gone bool) {
		if moment := last.see(p, gone); moment != "" {
			moments <- moment
		}
	}, client.MatchingLabels{podmeta.LabelModel: model})
	defer stop()
	asks := func(when string) bool {
		began := time.Now()
		status, text, err := s.chatAt(s.t.Context(), door, model)
		s.t.Logf("%s was asked when %s, and answered after %s", model, when, time.Since(began).Round(time.Millisecond))
		return assert.NoError(s.t, err) && assert.Equal(s.t, http.StatusOK, status, "when %s: %s", when, text)
	}
	if !asks("it was at zero") {
		return
	}
	all := []string{labelGoes, podEnds, podIsGone}
	for round := range rounds {
		for len(moments) > 0 { // of an earlier replica
			<-moments
		}
		timeout := time.After(patience.Wait())
		for wanted, moment := all[round%len(all)], ""; moment != wanted; {
			select {
			case moment = <-moments:
			case <-timeout:
				assert.Fail(s.t, "waited in vain", "%s, round %d: %s", model, round, wanted)
				return
			}
		}
		if !asks(all[round%len(all)]) {
			return
		}
	}
}

// lastReplica reports which moment of its end the Pod that got the label last has reached.
type lastReplica struct {
	uid types.UID
	at  string
}

// see returns the moment that has come with a version of a Pod; empty: none.
func (l *lastReplica) see(p *corev1.Pod, gone bool) string {
	if p.Labels[podmeta.LabelServes] != "" && !gone {
		l.uid, l.at = p.UID, ""
		return ""
	}
	if p.UID != l.uid {
		return ""
	}
	at := labelGoes
	switch {
	case gone:
		at = podIsGone
	case !p.DeletionTimestamp.IsZero():
		at = podEnds
	}
	if at == l.at {
		return ""
	}
	l.at = at
	return at
}
