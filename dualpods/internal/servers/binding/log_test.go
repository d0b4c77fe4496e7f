package binding

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestTheLogOfAnInstanceThatSleptBeginsWhereItFellAsleep(t *testing.T) {
	assert.Zero(t, newRecord(fresh()).LogFrom, "it is made for the requester")
	in := func(state string) decide.Observation {
		return but(fresh(), func(o *decide.Observation) { o.Instance = &launcherapi.Instance{State: state, AsleepAt: 700} })
	}
	asleep := in("sleeping")
	assert.EqualValues(t, 700, newRecord(asleep).LogFrom)
	assert.Negative(t, newRecord(in("awake")).LogFrom, "what it said since it was woken was for others")

	asleep.Record = newRecord(asleep)
	assert.EqualValues(t, 700, nextRecord(asleep).LogFrom)
	asleep.Instance = nil
	assert.Zero(t, nextRecord(asleep).LogFrom, "the next one is made for it")
}

func TestARequesterIsDeletedAfterItsLogWasRelayedOrCouldNotBe(t *testing.T) {
	for name, trouble := range map[string]error{"relayed": nil, "not relayed": errors.New("the launcher is away")} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}}
			api := fake.NewClientBuilder().WithObjects(pod).Build()
			relayed := 0
			c := New(t.Context(), Options{API: api, Recorder: silentRecorder{}, Now: time.Now, Again: func(string) {}, RelayLog: func(ctx context.Context, o decide.Observation) error {
				relayed++
				_, bounded := ctx.Deadline()
				assert.True(t, bounded)
				uid, _ := dualpods.RequesterIn(ctx)
				assert.Equal(t, o.Requester.UID, uid)
				assert.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}), "it is there still")
				return trouble
			}}, logr.Discard())
			o := servedOne()
			o.Requester.UID, o.Instance = pod.UID, &launcherapi.Instance{State: "failed"}
			w := &world{pods: map[types.UID]*corev1.Pod{pod.UID: pod}}
			n, step := c.work("node"), decide.Step{Do: decide.DeleteRequester, Reason: decide.ServerGone, Why: "it ended"}
			for range 2 {
				_, over, err := c.take(t.Context(), n, w, o, step)
				require.NoError(t, err)
				assert.True(t, over)
				n.calls.running.Wait()
			}
			assert.Equal(t, 1, relayed)
			assert.True(t, apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})))
			c.Close()
		})
	}
}

func TestThoseWhoseEnginesDieAtOnceAreUnreadyAtOnceHoweverLongTheirLogsAre(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "create", arg: 8},
		{at: 3 * time.Second, what: "create", arg: 9},
		{at: 20 * time.Second, what: "kill engine"},
		{at: 20 * time.Second, what: "kill engine", arg: 1},
	})
}
