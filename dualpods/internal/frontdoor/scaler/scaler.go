package scaler

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/spec/externalscaler"
)

// MetricDemand is the name of the metric: the requests for a Model that are in flight or held, at all front doors.
const MetricDemand = "demand"

// The metadata of a trigger.
const (
	KeyModel          = "model"          // the Model's name, in the namespace of the ScaledObject
	KeyTargetRequests = "targetRequests" // how many requests a replica is to have; absent: as the Model says
)

// Bounds.
const (
	mostTarget      = 1_000_000
	mostOfMessage   = 64 << 10
	mostConnections = 256
	mostStreams     = 10_000 // of one connection: KEDA has one for each ScaledObject
	startTime       = 10 * time.Second
	idleTime        = 2 * time.Minute
)

// hearPause is the pause before a stream looks again whether all front doors were heard.
const hearPause = time.Second

// Directory knows the Models.
type Directory interface {
	Find(namespace, name string, among func(*directory.Model) bool) (*directory.Model, string, error)
}

// Options of a Scaler.
type Options struct {
	Directory Directory
	Own       *demand.Own
	// Peers tells of the requests at other front doors, and whether all of them were heard.
	Peers interface {
		Of(model types.NamespacedName) (total demand.Count, heard bool)
	}
	TLS *tls.Config // nil: KEDA speaks without TLS
}

// Scaler is the server. It is safe for concurrent use.
type Scaler struct {
	externalscaler.UnimplementedExternalScalerServer

	opts   Options
	server *grpc.Server

	mu      sync.Mutex
	streams map[types.NamespacedName]map[chan struct{}]struct{} // what wakes the streams for each Model; of size 1
}

// New returns a Scaler that does not serve yet.
func New(o Options) *Scaler {
	by := insecure.NewCredentials()
	if o.TLS != nil {
		by = credentials.NewTLS(o.TLS)
	}
	s := &Scaler{opts: o, streams: map[types.NamespacedName]map[chan struct{}]struct{}{}, server: grpc.NewServer(
		grpc.Creds(by), grpc.MaxRecvMsgSize(mostOfMessage), grpc.MaxConcurrentStreams(mostStreams), grpc.ConnectionTimeout(startTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: idleTime, Timeout: startTime}),
	)}
	externalscaler.RegisterExternalScalerServer(s.server, s)
	return s
}

// Serve serves at a listener until Close.
func (s *Scaler) Serve(l net.Listener) error {
	return s.server.Serve(netutil.LimitListener(l, mostConnections))
}

// Close ends all streams, and returns when they have ended.
func (s *Scaler) Close() { s.server.Stop() }

// Changed wakes the streams for Models whose requests have changed.
func (s *Scaler) Changed(models []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, model := range models {
		for wake := range s.streams[model] {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
}

// follow has a channel get a value after each change of a Model, until stop.
func (s *Scaler) follow(model types.NamespacedName) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[model] == nil {
		s.streams[model] = map[chan struct{}]struct{}{}
	}
	s.streams[model][c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.streams[model], c); len(s.streams[model]) == 0 {
			delete(s.streams, model)
		}
	}
}

// find returns the Model that a trigger names.
func (s *Scaler) find(ref *externalscaler.ScaledObjectRef) (*directory.Model, error) {
	name := ref.GetScalerMetadata()[KeyModel]
	if name == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the metadata of the trigger have no %s: give the name of a Model in the namespace of the ScaledObject", KeyModel)
	}
	m, _, err := s.opts.Directory.Find(ref.GetNamespace(), name, func(*directory.Model) bool { return true })
	switch {
	case err != nil:
		return nil, status.Errorf(codes.NotFound, "namespace %s: %s", ref.GetNamespace(), err)
	case !m.External:
		return nil, status.Errorf(codes.FailedPrecondition, "Model %s is scaled by its requests: set spec.autoscaling.mode to External, or remove the ScaledObject", m.Key)
	}
	return m, nil
}

// demandFor returns the number of requests for a Model, and whether all front doors have told theirs.
func (s *Scaler) demandFor(m *directory.Model) (total int, heard bool) {
	all, heard := s.opts.Peers.Of(m.Key)
	all.Add(s.opts.Own.Of(m.Key))
	return all.Total(), heard
}

// errUnheard keeps KEDA from scaling down while the demand is not known.
var errUnheard = status.Error(codes.Unavailable, "a front door has not told its requests yet: ask again in a few seconds")

// IsActive says whether there are requests.
func (s *Scaler) IsActive(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	m, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	total, heard := s.demandFor(m)
	if total == 0 && !heard {
		return nil, errUnheard
	}
	return &externalscaler.IsActiveResponse{Result: total > 0}, nil
}

// StreamIsActive says the same at once, and again when it changes.
func (s *Scaler) StreamIsActive(ref *externalscaler.ScaledObjectRef, stream grpc.ServerStreamingServer[externalscaler.IsActiveResponse]) error {
	m, err := s.find(ref)
	if err != nil {
		return err
	}
	wake, stop := s.follow(m.Key)
	defer stop()
	for said, was := false, false; ; {
		var again <-chan time.Time
		total, heard := s.demandFor(m)
		if is := total > 0; !is && !heard {
			again = time.After(hearPause)
		} else if !said || is != was {
			if err := stream.Send(&externalscaler.IsActiveResponse{Result: is}); err != nil {
				return err
			}
			said, was = true, is
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-wake:
		case <-again:
		}
		if m, err = s.find(ref); err != nil {
			return err
		}
	}
}

// GetMetricSpec says how many requests a replica is to have.
func (s *Scaler) GetMetricSpec(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	m, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	target := m.Target
	if text, given := ref.GetScalerMetadata()[KeyTargetRequests]; given {
		if target, err = strconv.Atoi(text); err != nil || target < 1 || target > mostTarget {
			return nil, status.Errorf(codes.InvalidArgument, "%s %q of the trigger should be a number from 1 to %d", KeyTargetRequests, text, mostTarget)
		}
	}
	if target == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "Model %s has only standbys, which no autoscaler scales: add an entry with targetRequests above 0", m.Key)
	}
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: []*externalscaler.MetricSpec{{MetricName: MetricDemand, TargetSize: int64(target), TargetSizeFloat: float64(target)}}}, nil
}

// GetMetrics returns the number of requests.
func (s *Scaler) GetMetrics(_ context.Context, request *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	m, err := s.find(request.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	if request.GetMetricName() != MetricDemand {
		return nil, status.Errorf(codes.InvalidArgument, "there is no metric %q: the only one is %s", request.GetMetricName(), MetricDemand)
	}
	total, heard := s.demandFor(m)
	if !heard {
		return nil, errUnheard
	}
	return &externalscaler.GetMetricsResponse{MetricValues: []*externalscaler.MetricValue{{MetricName: MetricDemand, MetricValue: int64(total), MetricValueFloat: float64(total)}}}, nil
}
