package demand_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/spec/podmeta"
)

// dials notes which addresses are dialled first.
type dials chan string

func (d dials) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case d <- r.URL.String():
	default:
	}
	return nil, errors.New("nobody answers")
}

// A Pod cannot say that it is to be called without TLS.
func TestFrontDoorIsCalledByTLSUnlessAllSpeakHTTP(t *testing.T) {
	for plain, want := range map[bool]string{false: "https://10.0.0.1:8002/demand", true: "http://10.0.0.1:8002/demand"} {
		d := make(dials, 1)
		pods := &demand.Pods{Plain: plain, Listener: demand.NewListener(demand.Options{Client: &http.Client{Transport: d}, Logger: slog.New(slog.DiscardHandler)})}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "system", Name: "door", UID: "door", Labels: map[string]string{podmeta.LabelComponent: podmeta.ComponentFrontDoor},
		}}
		pod.Status.PodIP = "10.0.0.1"
		pods.Set(pod)
		assert.Equal(t, want, <-d)
		pods.Listener.Close()
	}
}
