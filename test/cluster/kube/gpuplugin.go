package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// gpuPlugin is a kubelet's device plugin that advertises simulated GPUs by
// UUID, as the plugin of NVIDIA does: resource nvidia.com/gpu, the UUIDs as ids
// of devices, NVIDIA_VISIBLE_DEVICES in the container.
type gpuPlugin struct {
	plugin.UnimplementedDevicePluginServer
	uuids []string
	ended chan struct{} // closed when the plugin ends
}

const (
	gpuResource = "nvidia.com/gpu"
	gpuSocket   = "hotseat-gpu.sock"
)

func newGPUPluginCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gpu-plugin", Short: "Advertise simulated GPUs to the kubelet", SilenceUsage: true, Args: cobra.NoArgs}
	uuids := cmd.Flags().StringSlice("gpus", nil, "UUIDs of the GPUs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := &gpuPlugin{uuids: *uuids, ended: make(chan struct{})}
		defer close(p.ended)
		return p.run(cmd.Context())
	}
	return cmd
}

// run serves, and registers whenever a kubelet has made its socket: at the
// beginning and after each restart.
func (p *gpuPlugin) run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := os.MkdirAll(plugin.DevicePluginPath, 0o755); err != nil {
		return err
	}
	if err := watcher.Add(plugin.DevicePluginPath); err != nil {
		return err
	}
	for {
		if err := p.serveOne(ctx, watcher); err != nil {
			return err
		}
	}
}

// serveOne serves one kubelet, until there is another: a kubelet that starts
// removes every socket of that folder.
func (p *gpuPlugin) serveOne(ctx context.Context, watcher *fsnotify.Watcher) error {
	for {
		if _, err := os.Stat(plugin.KubeletSocket); err == nil {
			break
		}
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	path := filepath.Join(plugin.DevicePluginPath, gpuSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-served
	}()
	if err := p.register(ctx); err != nil {
		return err
	}
	for {
		select {
		case event := <-watcher.Events:
			if event.Name == plugin.KubeletSocket && event.Has(fsnotify.Create) {
				return nil
			}
		case err := <-watcher.Errors:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// register tries for a while: the kubelet makes its socket before it answers.
func (p *gpuPlugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = plugin.NewRegistrationClient(conn).Register(ctx, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: gpuSocket, ResourceName: gpuResource, Options: &plugin.DevicePluginOptions{},
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("cannot register with the kubelet: %w", err)
	}
	return nil
}

func (p *gpuPlugin) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (p *gpuPlugin) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	var devices []*plugin.Device
	for _, uuid := range p.uuids {
		devices = append(devices, &plugin.Device{ID: uuid, Health: plugin.Healthy})
	}
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.ended:
	}
	return nil
}

func (p *gpuPlugin) Allocate(_ context.Context, req *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	answer := &plugin.AllocateResponse{}
	for _, container := range req.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &plugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(deviceIDs(container), ",")},
		})
	}
	return answer, nil
}

// deviceIDs returns the ids of the devices that a container is to get. Their field has
// another name before Kubernetes 1.34.
func deviceIDs(container any) []string {
	switch container := container.(type) {
	case interface{ GetDevicesIds() []string }:
		return container.GetDevicesIds()
	case interface{ GetDevicesIDs() []string }:
		return container.GetDevicesIDs()
	default:
		panic(fmt.Sprintf("this release of Kubernetes has no ids of devices in a %T", container))
	}
}

func (p *gpuPlugin) PreStartContainer(context.Context, *plugin.PreStartContainerRequest) (*plugin.PreStartContainerResponse, error) {
	return &plugin.PreStartContainerResponse{}, nil
}

func (p *gpuPlugin) GetPreferredAllocation(context.Context, *plugin.PreferredAllocationRequest) (*plugin.PreferredAllocationResponse, error) {
	return &plugin.PreferredAllocationResponse{}, nil
}
