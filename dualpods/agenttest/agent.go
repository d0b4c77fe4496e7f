// Package agenttest has agents of nodes, each beside a kubelet that is played, for tests and
// benches that need thousands of them. The agent is the product's own server. The kubelet answers
// List of its PodResources API, as often as a real one, with the Pods that have devices. Left out
// are the Pods without devices, topology, and the other calls.
package agenttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// A kubelet refuses questions beyond these (kubernetes, pkg/kubelet/apis/podresources/constants.go).
const (
	questionsPerSecond = 100
	questionsAtOnce    = 10
)

// Options configure an [Agent].
type Options struct {
	Listen string // address and port of the agent
	Socket string // path of the kubelet's socket, which New makes
	TLS    mtls.Server
	// Pods returns those that have devices, as the kubelet knows them now.
	Pods   func() []podresourcesapi.Pod
	Logger *slog.Logger
}

// Agent is the agent of a node, and the played kubelet beside it.
type Agent struct {
	server  *podresources.Server
	kubelet *grpc.Server
	socket  net.Listener
}

// New listens; Run serves.
func New(ctx context.Context, opts Options) (*Agent, error) {
	return newAgent(ctx, opts, rate.NewLimiter(questionsPerSecond, questionsAtOnce))
}

func newAgent(ctx context.Context, opts Options, limit *rate.Limiter) (*Agent, error) {
	socket, err := new(net.ListenConfig).Listen(ctx, "unix", opts.Socket)
	if err != nil {
		return nil, fmt.Errorf("cannot play a kubelet: %w", err)
	}
	server, err := podresources.New(ctx, podresources.Options{Listen: opts.Listen, Socket: opts.Socket, TLS: opts.TLS, Logger: opts.Logger})
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	a := &Agent{server: server, socket: socket, kubelet: grpc.NewServer(grpc.UnaryInterceptor(limited(limit)))}
	kubelet.RegisterPodResourcesListerServer(a.kubelet, &lister{pods: opts.Pods})
	return a, nil
}

// Addr is where the agent listens.
func (a *Agent) Addr() net.Addr { return a.server.Addr() }

// Run serves until ctx ends, and gives back what New took.
func (a *Agent) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- a.kubelet.Serve(a.socket) }()
	err := a.server.Run(ctx)
	a.kubelet.Stop()
	if stopped := <-ended; !errors.Is(stopped, grpc.ErrServerStopped) {
		err = errors.Join(err, stopped)
	}
	return err
}

// limited refuses questions as a kubelet does (pkg/kubelet/apis/grpc/ratelimit.go).
func limited(limit *rate.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, question any, _ *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return answer(ctx, question)
	}
}

// lister is the played kubelet.
type lister struct {
	kubelet.UnimplementedPodResourcesListerServer
	pods func() []podresourcesapi.Pod
}

// List implements [kubelet.PodResourcesListerServer].
func (l *lister) List(context.Context, *kubelet.ListPodResourcesRequest) (*kubelet.ListPodResourcesResponse, error) {
	all := &kubelet.ListPodResourcesResponse{}
	for _, pod := range l.pods() {
		told := &kubelet.PodResources{Namespace: pod.Namespace, Name: pod.Name}
		for _, container := range pod.Containers {
			c := &kubelet.ContainerResources{Name: container.Name}
			for resource, ids := range container.Devices {
				c.Devices = append(c.Devices, &kubelet.ContainerDevices{ResourceName: resource, DeviceIds: ids})
			}
			told.Containers = append(told.Containers, c)
		}
		all.PodResources = append(all.PodResources, told)
	}
	return all, nil
}
