//go:build cluster

package e2e

import (
	"context"
	"maps"
	"math"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"hotseat.dev/hotseat/spec/externalscaler"
)

// external is a Model that somebody else scales. Its entry a has one replica at most.
const external = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4]
  autoscaling: {mode: External}
  targetRequests: 2
specs:
- {name: a, maxReplicas: 1}
- {name: b}
`

// keda asks the front door as KEDA does for a ScaledObject.
type keda struct {
	*site
	externalscaler.ExternalScalerClient

	ref *externalscaler.ScaledObjectRef
}

func (s *site) keda(model string) *keda {
	s.t.Helper()
	host, _, err := net.SplitHostPort(s.frontDoor())
	require.NoError(s.t, err)
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, "8003"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.cluster.Dial(ctx, "tcp", address)
		}))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, conn.Close()) })
	return &keda{s, externalscaler.NewExternalScalerClient(conn), &externalscaler.ScaledObjectRef{Name: model, Namespace: s.ns, ScalerMetadata: map[string]string{"model": model}}}
}

// wants returns how many replicas the HorizontalPodAutoscaler of KEDA would ask for.
func (k *keda) wants() int {
	k.t.Helper()
	spec, err := k.GetMetricSpec(k.t.Context(), k.ref)
	require.NoError(k.t, err)
	got, err := k.GetMetrics(k.t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: k.ref, MetricName: spec.MetricSpecs[0].MetricName})
	require.NoError(k.t, err)
	return int(math.Ceil(got.MetricValues[0].MetricValueFloat / spec.MetricSpecs[0].TargetSizeFloat))
}

func TestKEDAScalesAModelFromZeroAndBack(t *testing.T) {
	s := newPool(t, nil)
	s.declare(external)
	s.awaitDoors("llama")
	k := s.keda("llama")
	stream, err := k.StreamIsActive(t.Context(), k.ref)
	require.NoError(t, err)
	next := func() bool {
		is, err := stream.Recv()
		require.NoError(t, err)
		return is.Result
	}
	require.False(t, next(), "nobody asks")
	assert.Empty(t, s.modelPods("llama"))

	stop := s.chats("llama", s.frontDoor(), 4)
	require.True(t, next(), "four requests are held")
	s.kubectl("scale", "mdl/llama", "--replicas=1")
	s.serves("llama", "a (1)")
	s.eventually("the metric asks for two", func() bool { return k.wants() == 2 })
	s.kubectl("scale", "mdl/llama", "--replicas=2")
	s.serves("llama", "a (1), b (1)")
	assert.Equal(t, []string{"200"}, slices.Collect(maps.Keys(stop())))

	for next() { // the stream says so once there are no requests; it may have said so before, between two requests of each client
	}
	s.eventually("no request is left", func() bool {
		is, err := k.IsActive(t.Context(), k.ref)
		require.NoError(t, err)
		return !is.Result && k.wants() == 0
	})
	s.kubectl("scale", "mdl/llama", "--replicas=0")
	s.eventually("it is at zero", func() bool { return len(s.modelPods("llama")) == 0 })
}
