package scaler_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/scaler"
	"hotseat.dev/hotseat/spec/externalscaler"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var llama = types.NamespacedName{Namespace: "team", Name: "llama"}

// peers are other front doors, which have no requests.
type peers struct {
	mu      sync.Mutex
	unheard bool
	total   int
	refused bool
}

func (p *peers) Of(types.NamespacedName) (demand.Count, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return demand.Count{Held: p.total, Refused: p.refused}, !p.unheard
}

// site is a Scaler with the Model llama, and what asks it as KEDA does.
type site struct {
	t         *testing.T
	directory *directory.Directory
	own       *demand.Own
	peers     *peers
	scaler    *scaler.Scaler
	conn      *grpc.ClientConn
	keda      externalscaler.ExternalScalerClient
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, own: demand.NewOwn(), peers: &peers{}, directory: directory.New(func(types.NamespacedName) {})}
	s.set(func(*v1alpha1.Model) {})
	s.scaler = scaler.New(scaler.Options{Directory: s.directory, Own: s.own, Peers: s.peers})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	s.keda = externalscaler.NewExternalScalerClient(s.conn)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, s.scaler.Serve(l)) })
	running.Go(func() { s.own.Follow(ctx, s.scaler.Changed) })
	t.Cleanup(func() { stop(); s.scaler.Close(); running.Wait(); assert.NoError(t, s.conn.Close()) })
	return s
}

// set notes the Model, as it is after an edit.
func (s *site) set(edit func(*v1alpha1.Model)) {
	m := &v1alpha1.Model{Specs: []v1alpha1.ModelEntry{
		{Name: "standby", ServerSettings: v1alpha1.ServerSettings{TargetRequests: new(int32(0))}},
		{Name: "a", ServerSettings: v1alpha1.ServerSettings{TargetRequests: new(int32(7))}},
		{Name: "b"},
	}}
	m.Namespace, m.Name = llama.Namespace, llama.Name
	m.Spec.Autoscaling = &v1alpha1.ModelAutoscaling{Mode: v1alpha1.ScaleExternally}
	edit(m)
	s.directory.SetModel(m)
}

func ref(keysAndValues ...string) *externalscaler.ScaledObjectRef {
	r := &externalscaler.ScaledObjectRef{Name: "any", Namespace: "team", ScalerMetadata: map[string]string{"scalerAddress": "front-door:8003", "model": "llama"}}
	for i := 0; i < len(keysAndValues); i += 2 {
		r.ScalerMetadata[keysAndValues[i]] = keysAndValues[i+1]
	}
	return r
}

// demand returns the metric, as KEDA asks for it after the specification of the metrics.
func (s *site) demand(r *externalscaler.ScaledObjectRef) (value, target float64) {
	s.t.Helper()
	spec, err := s.keda.GetMetricSpec(s.t.Context(), r)
	require.NoError(s.t, err)
	require.Len(s.t, spec.MetricSpecs, 1)
	got, err := s.keda.GetMetrics(s.t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: r, MetricName: spec.MetricSpecs[0].MetricName})
	require.NoError(s.t, err)
	require.Len(s.t, got.MetricValues, 1)
	assert.Equal(s.t, spec.MetricSpecs[0].MetricName, got.MetricValues[0].MetricName)
	assert.InDelta(s.t, float64(got.MetricValues[0].MetricValue), got.MetricValues[0].MetricValueFloat, 0)
	assert.InDelta(s.t, float64(spec.MetricSpecs[0].TargetSize), spec.MetricSpecs[0].TargetSizeFloat, 0)
	return got.MetricValues[0].MetricValueFloat, spec.MetricSpecs[0].TargetSizeFloat
}

func TestMetricIsTheRequestsAtAllFrontDoors(t *testing.T) {
	s := newSite(t)
	waits, answered := s.own.Request(llama), s.own.Request(llama)
	require.True(t, waits.Hold(10, 0))
	answered.Enter("pod")
	s.peers.total = 3
	value, target := s.demand(ref())
	assert.Equal(t, []float64{5, 7}, []float64{value, target}, "the target is that of the first entry that is no standby")
	_, target = s.demand(ref("targetRequests", "2"))
	assert.InDelta(t, 2, target, 0)
	active, err := s.keda.IsActive(t.Context(), ref())
	require.NoError(t, err)
	assert.True(t, active.Result)
}

func TestRequestThatMayNotWaitCountsOnceAtAllFrontDoors(t *testing.T) {
	s := newSite(t)
	s.own.Refuse(llama, time.Hour)
	s.peers.refused = true
	value, _ := s.demand(ref())
	assert.InDelta(t, 1, value, 0)
}

func TestStreamTellsEachChangeOnce(t *testing.T) {
	s := newSite(t)
	stream, err := s.keda.StreamIsActive(t.Context(), ref())
	require.NoError(t, err)
	next := func() bool {
		is, err := stream.Recv()
		require.NoError(t, err)
		return is.Result
	}
	assert.False(t, next(), "it says at once what is")
	first, second := s.own.Request(llama), s.own.Request(llama)
	require.True(t, first.Hold(10, 0))
	assert.True(t, next())
	require.True(t, second.Hold(10, 0)) // it is active already
	first.Enter("pod")
	first.Leave()
	second.Leave()
	assert.False(t, next())

	s.peers.mu.Lock()
	s.peers.total = 1
	s.peers.mu.Unlock()
	s.scaler.Changed([]types.NamespacedName{llama})
	assert.True(t, next(), "a request waits at another front door")

	s.directory.DeleteModel(llama)
	s.scaler.Changed([]types.NamespacedName{llama})
	_, err = stream.Recv()
	assert.Equal(t, codes.NotFound, status.Code(err))
}

func TestClosedScalerEndsItsStreams(t *testing.T) {
	s := newSite(t)
	stream, err := s.keda.StreamIsActive(t.Context(), ref())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	s.scaler.Close()
	_, err = stream.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err))
}

func TestNothingIsInactiveWhileAFrontDoorIsUnheard(t *testing.T) {
	s := newSite(t)
	s.peers.unheard = true
	_, err := s.keda.IsActive(t.Context(), ref())
	assert.Equal(t, codes.Unavailable, status.Code(err))
	_, err = s.keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref(), MetricName: "demand"})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	stream, err := s.keda.StreamIsActive(t.Context(), ref())
	require.NoError(t, err)
	require.True(t, s.own.Request(llama).Hold(10, 0))
	is, err := stream.Recv()
	require.NoError(t, err)
	assert.True(t, is.Result, "the first that it says")
}

func TestMistakesOfATriggerAreNamed(t *testing.T) {
	const standbys, mode = "standbys", "mode"
	for name, c := range map[string]struct {
		ref  *externalscaler.ScaledObjectRef
		edit string
		code codes.Code
		want string
	}{
		"no model":                {ref: ref("model", ""), code: codes.InvalidArgument, want: "have no model"},
		"an unknown model":        {ref: ref("model", "lama"), code: codes.NotFound, want: "did you mean llama?"},
		"another namespace":       {ref: &externalscaler.ScaledObjectRef{Namespace: "other", ScalerMetadata: ref().ScalerMetadata}, code: codes.NotFound, want: "namespace other"},
		"a target that is none":   {ref: ref("targetRequests", "many"), code: codes.InvalidArgument, want: `targetRequests "many" of the trigger should be a number from 1`},
		"a target of zero":        {ref: ref("targetRequests", "0"), code: codes.InvalidArgument, want: "should be a number from 1"},
		"a Model of another mode": {ref: ref(), edit: mode, code: codes.FailedPrecondition, want: "set spec.autoscaling.mode to External"},
		"standbys alone":          {ref: ref(), edit: standbys, code: codes.FailedPrecondition, want: "has only standbys"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.set(func(m *v1alpha1.Model) {
				switch c.edit {
				case mode:
					m.Spec.Autoscaling = nil
				case standbys:
					m.Specs = m.Specs[:1]
				}
			})
			_, err := s.keda.GetMetricSpec(t.Context(), c.ref)
			assert.Equal(t, c.code, status.Code(err))
			assert.ErrorContains(t, err, c.want)
		})
	}
	s := newSite(t)
	_, err := s.keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref(), MetricName: "other"})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	_, err = s.keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
}

// TestAnswersAreThoseOfTheProto asks with messages that are made from the proto file alone.
func TestAnswersAreThoseOfTheProto(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../../../spec/externalscaler"}}}
	files, err := compiler.Compile(t.Context(), "externalscaler.proto")
	require.NoError(t, err)
	service := files[0].Services().ByName("ExternalScaler")
	require.NotNil(t, service)
	generated := protodesc.ToFileDescriptorProto(externalscaler.File_externalscaler_proto)
	assert.True(t, proto.Equal(protodesc.ToFileDescriptorProto(files[0]), generated), "the Go files are stale: run make generate")

	s := newSite(t)
	require.True(t, s.own.Request(llama).Hold(10, 0))
	for name, c := range map[protoreflect.Name]struct{ ask, want string }{
		"IsActive":      {`{"namespace": "team", "scalerMetadata": {"model": "llama"}}`, `{"result": true}`},
		"GetMetricSpec": {`{"namespace": "team", "scalerMetadata": {"model": "llama"}}`, `{"metricSpecs": [{"metricName": "demand", "targetSize": "7", "targetSizeFloat": 7}]}`},
		"GetMetrics":    {`{"scaledObjectRef": {"namespace": "team", "scalerMetadata": {"model": "llama"}}, "metricName": "demand"}`, `{"metricValues": [{"metricName": "demand", "metricValue": "1", "metricValueFloat": 1}]}`},
	} {
		method := service.Methods().ByName(name)
		require.NotNil(t, method, name)
		ask, got := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		require.NoError(t, protojson.Unmarshal([]byte(c.ask), ask))
		require.NoError(t, s.conn.Invoke(t.Context(), "/externalscaler.ExternalScaler/"+string(name), ask, got))
		text, err := protojson.Marshal(got)
		require.NoError(t, err)
		assert.JSONEq(t, c.want, string(text), name)
	}
}
