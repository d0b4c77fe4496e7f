package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"hotseat.dev/hotseat/dualpods/requestertest"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// playedPod is the metadata of a played Pod.
func playedPod(name string, node, number int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Annotations: map[string]string{ipAnnotation: podAddress(node, number)},
	}}
}

func TestPlayedKubeletGivesTheGPUThatTheProgramSays(t *testing.T) {
	d := &devices{pods: map[int]map[types.UID]podresourcesapi.Pod{}}
	d.see(playedPod("launcher", 3, launcherNumber), false)
	d.see(playedPod("agent", 3, agentNumber), false)
	d.see(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "no address yet"}}, false)
	assert.Empty(t, d.of(3))
	requester := playedPod("requester", 3, firstRequester+7)
	d.see(requester, false)
	d.see(requester, false)
	d.see(playedPod("elsewhere", 4, firstRequester), false)

	s := &standIn{requesters: map[[2]int]*requestertest.Requester{}}
	to := &net.TCPAddr{IP: net.ParseIP(requester.Annotations[ipAnnotation]), Port: spiPort}
	asks := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, to), http.MethodGet, requesterapi.PathAccelerators, nil)
	answer := httptest.NewRecorder()
	s.requester(answer, asks)
	var says []string
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &says))
	assert.Equal(t, []podresourcesapi.Pod{{Namespace: namespace, Name: "requester", Containers: []podresourcesapi.Container{{
		Name: podmeta.ServingContainer, Devices: map[string][]string{string(podmeta.ResourceGPU): says},
	}}}}, d.of(3))

	d.see(toolscache.DeletedFinalStateUnknown{Obj: requester}, true)
	assert.Empty(t, d.of(3))
	assert.Len(t, d.of(4), 1)
}

func TestArrivalAddsTheTimesThatRequestersWaitForDualPods(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	ahead, behind, none := &arrivals{}, &arrivals{}, &arrivals{}
	require.NoError(t, ahead.add(at(0), at(300), note{Came: at(20), Over: at(21), Ready: at(305)}))
	require.NoError(t, behind.add(at(0), at(300), note{Came: at(310), Over: at(311), Ready: at(316)}))
	assert.Equal(t, 25*time.Millisecond, ahead.added.P50())
	assert.Equal(t, 315*time.Millisecond, behind.added.P50())
	require.ErrorContains(t, none.add(at(0), at(300), note{Came: at(20), Over: at(21)}), "moments are missing")
	assert.Equal(t, "50.0 %", boundAhead(ahead, behind, none).Ours)
}
