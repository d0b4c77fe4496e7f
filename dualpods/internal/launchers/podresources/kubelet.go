package podresources

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// mostFromKubelet is how many bytes the kubelet may answer, which tells of every
// Pod of its node.
const mostFromKubelet = 16 << 20

// lister asks a kubelet.
type lister struct {
	conn   *grpc.ClientConn
	client kubelet.PodResourcesListerClient
	turn   chan struct{} // holds one: a kubelet refuses whoever asks too much at once
}

// newLister does not connect: that is done for the first question, and again
// after the kubelet was started again.
func newLister(socket string) (*lister, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostFromKubelet)), grpc.WithConnectParams(reconnect))
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubelet's socket %s: %w", socket, err)
	}
	return &lister{conn: conn, client: kubelet.NewPodResourcesListerClient(conn), turn: make(chan struct{}, 1)}, nil
}

func (l *lister) close() error { return l.conn.Close() }

// list gives the Pods that have devices.
func (l *lister) list(ctx context.Context) (podresourcesapi.Pods, error) {
	answer := podresourcesapi.Pods{Pods: []podresourcesapi.Pod{}}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	all, err := l.client.List(ctx, &kubelet.ListPodResourcesRequest{})
	if err != nil {
		return answer, err
	}
	for _, p := range all.GetPodResources() {
		pod := podresourcesapi.Pod{Namespace: p.GetNamespace(), Name: p.GetName()}
		for _, c := range p.GetContainers() {
			if devices := devicesOf(c); len(devices) > 0 {
				pod.Containers = append(pod.Containers, podresourcesapi.Container{Name: c.GetName(), Devices: devices})
			}
		}
		if len(pod.Containers) > 0 {
			answer.Pods = append(answer.Pods, pod)
		}
	}
	return answer, nil
}

// devicesOf are the ids by resource. The kubelet tells a resource once for each
// set of devices with a topology of their own.
func devicesOf(c *kubelet.ContainerResources) map[string][]string {
	devices := map[string][]string{}
	for _, d := range c.GetDevices() {
		if len(d.GetDeviceIds()) > 0 {
			devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
		}
	}
	return devices
}
