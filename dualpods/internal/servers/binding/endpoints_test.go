package binding

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestARequesterServesWhereConnectionsToItReachAModelThatIsAwake(t *testing.T) {
	const yes, no, unknown = "serves", "does not", "cannot be told"
	for name, c := range map[string]struct {
		o    Observation
		want string
	}{
		"served":                                        {servedOne(), yes},
		"not bound":                                     {fresh(), no},
		"its model is not awake":                        {but(servedOne(), func(o *Observation) { o.Instance.State = "falling_asleep" }), no},
		"its model was told to sleep":                   {but(servedOne(), func(o *Observation) { o.Calls.Sleep = true }), no},
		"its model has gone":                            {but(servedOne(), func(o *Observation) { o.Instance = nil }), no},
		"it is not ready":                               {but(servedOne(), func(o *Observation) { o.SPI.Proxy.Ready = false }), no},
		"its program carries nothing":                   {but(servedOne(), unserved), no},
		"its program forwards elsewhere":                {but(servedOne(), func(o *Observation) { o.Record.Attempt = 2 }), no},
		"its program does not run":                      {but(servedOne(), func(o *Observation) { o.Requester.Running, o.SPI = false, nil }), no},
		"its program does not answer":                   {but(servedOne(), func(o *Observation) { o.SPI = nil }), unknown},
		"its program does not answer, its model sleeps": {but(servedOne(), func(o *Observation) { o.SPI, o.Instance.State = nil, "sleeping" }), no},
		"its launcher does not answer":                  {but(servedOne(), func(o *Observation) { o.Launcher.Connected = false }), unknown},
		"its launcher goes and does not answer":         {but(servedOne(), func(o *Observation) { o.Launcher.Connected, o.Launcher.Deleting = false, true }), no},
		"its launcher's container has ended":            {but(servedOne(), func(o *Observation) { o.Launcher.Connected, o.Launcher.Ended, o.Instance = false, true, nil }), no},
		"its record cannot be read":                     {but(servedOne(), func(o *Observation) { o.Record, o.Unread = nil, "damaged" }), unknown},
		"its node is gone":                              {but(servedOne(), func(o *Observation) { o.Node.Gone = true }), no},
		"it is deleted":                                 {but(servedOne(), deletedNow), yes},
		"it is deleted, and was told to end":            {but(servedOne(), func(o *Observation) { deletedNow(o); toldToEnd(o, time.Second) }), no},
		"the kubelet ends it":                           {but(servedOne(), endingNow), no},
		"it has ended":                                  {but(servedOne(), func(o *Observation) { o.Requester.Finished = true }), no},
		"it has other GPUs than its record":             {but(servedOne(), func(o *Observation) { o.SPI.GPUs = []string{"GPU-1"} }), no},
		"its specification has changed":                 {but(servedOne(), func(o *Observation) { o.Form.Port = 9000 }), yes},
	} {
		serves, known := c.o.serves()
		got := unknown
		if known {
			got = map[bool]string{true: yes, false: no}[serves]
		}
		assert.Equal(t, c.want, got, name)
	}
}

// notes records what it is told.
type notes struct {
	said  []bool
	gone  []types.UID
	asked int
}

func (s *notes) Note(_ context.Context, _ *corev1.Pod, serves bool) { s.said = append(s.said, serves) }
func (s *notes) Forget(uid types.UID)                               { s.gone = append(s.gone, uid) }
func (s *notes) Leads(context.Context, *corev1.Pod) (bool, time.Time) {
	s.asked++
	return true, time.Time{}
}

func TestTheSlicesAreToldWhatIsNewAndAskedAboutThoseThatGo(t *testing.T) {
	told := &notes{}
	c := &Controller{opts: Options{Endpoints: told}}
	n := &nodeWork{name: "node", serves: map[types.UID]bool{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "req", UID: "uid", Annotations: map[string]string{podmeta.AnnotationServerPatch: "{}"}}}
	sees := func(o Observation) Observation {
		c.observeEndpoints(t.Context(), n, &o, pod)
		return o
	}
	sees(servedOne())
	sees(servedOne())
	sees(but(servedOne(), func(o *Observation) { o.SPI = nil }))
	assert.Equal(t, []bool{true}, told.said)
	assert.Zero(t, told.asked)
	gone := sees(but(servedOne(), func(o *Observation) { deletedNow(o); toldToEnd(o, 0) }))
	assert.Equal(t, []bool{true, false}, told.said)
	assert.True(t, gone.Slices.Lead)
	sees(but(servedOne(), func(o *Observation) {
		deletedNow(o)
		o.SPI.Proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
	}))
	assert.Equal(t, 1, told.asked, "nobody waits for one that carries nothing")
	c.forgetServes(n, &world{pods: map[types.UID]*corev1.Pod{"uid": pod}})
	assert.Empty(t, told.gone)
	c.forgetServes(n, &world{})
	assert.Equal(t, []types.UID{"uid"}, told.gone)
	assert.Empty(t, n.serves)
}

func TestWhatSlicesKnowIsNotForgottenWhenARequesterGetsItsNode(t *testing.T) {
	told := &notes{}
	c := &Controller{opts: Options{Endpoints: told}}
	unplaced, node := &nodeWork{serves: map[types.UID]bool{}}, &nodeWork{name: "node", serves: map[types.UID]bool{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "req", UID: "uid"}}
	waits, serves := fresh(), servedOne()
	c.observeEndpoints(t.Context(), unplaced, &waits, pod)
	c.observeEndpoints(t.Context(), node, &serves, pod)
	c.forgetServes(unplaced, &world{}) // a pass that is late
	assert.Equal(t, []bool{true}, told.said)
	assert.Empty(t, told.gone)
}
