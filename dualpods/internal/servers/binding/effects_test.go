package binding

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

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
	sees := func(o decide.Observation) decide.Observation {
		c.observeEndpoints(t.Context(), n, &o, pod)
		return o
	}
	sees(servedOne())
	sees(servedOne())
	sees(but(servedOne(), func(o *decide.Observation) { o.SPI = nil }))
	assert.Equal(t, []bool{true}, told.said)
	assert.Zero(t, told.asked)
	gone := sees(but(servedOne(), func(o *decide.Observation) {
		o.Requester.Deleting, o.SPI.Proxy.Ready, o.SPI.Proxy.Terminating = true, false, true
	}))
	assert.Equal(t, []bool{true, false}, told.said)
	assert.True(t, gone.Slices.Lead)
	sees(but(servedOne(), func(o *decide.Observation) {
		o.Requester.Deleting = true
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
