package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"hotseat.dev/hotseat/dualpods/agenttest"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// devices are what the kubelets of all nodes have given to whom. A kubelet gives a requester its
// GPUs as soon as it sees the Pod on its node.
type devices struct {
	mu   sync.Mutex
	pods map[int]map[types.UID]podresourcesapi.Pod // by node
}

// serveAgents runs the agents of all nodes, and has the kubelets see their Pods, until ctx ends.
func serveAgents(ctx context.Context, o standInOptions) error {
	d := &devices{pods: map[int]map[types.UID]podresourcesapi.Pod{}}
	secured := mtls.Server{CertFile: filepath.Join(o.Agents, mtls.CertFile), KeyFile: filepath.Join(o.Agents, mtls.KeyFile), ClientCAFile: filepath.Join(o.Agents, mtls.CAFile)}
	ctx, fail := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer fail(nil)
	for node := range o.Nodes {
		agent, err := agenttest.New(ctx, agenttest.Options{
			Listen: net.JoinHostPort(podAddress(node, agentNumber), strconv.Itoa(podresourcesapi.DefaultPort)), Socket: filepath.Join(o.Agents, strconv.Itoa(node)),
			TLS: secured, Pods: func() []podresourcesapi.Pod { return d.of(node) }, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err != nil {
			return fmt.Errorf("cannot play the agent of %s: %w", nodeName(node), err)
		}
		running.Go(func() {
			if err := agent.Run(ctx); err != nil {
				fail(fmt.Errorf("the agent of %s ended: %w", nodeName(node), err))
			}
		})
	}
	if err := d.watch(ctx, o.Kubeconfig); err != nil {
		fail(err)
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch sees the Pods that have a node, until ctx ends.
func (d *devices) watch(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	api, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot watch Pods: %w", err)
	}
	pods := metadatainformer.NewFilteredMetadataInformer(api, corev1.SchemeGroupVersion.WithResource("pods"), namespace, 0, nil, func(list *metav1.ListOptions) {
		list.FieldSelector = "spec.nodeName!="
	}).Informer()
	if _, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { d.see(o, false) },
		UpdateFunc: func(_, o any) { d.see(o, false) },
		DeleteFunc: func(o any) { d.see(o, true) },
	}); err != nil {
		return fmt.Errorf("cannot watch Pods: %w", err)
	}
	pods.RunWithContext(ctx)
	return nil
}

// see gives a requester its GPUs, or takes them back when it is gone. Other Pods have none.
func (d *devices) see(o any, gone bool) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	pod, ok := o.(*metav1.PartialObjectMetadata)
	if !ok || pod.Annotations[ipAnnotation] == "" {
		return
	}
	node, number := whose(net.ParseIP(pod.Annotations[ipAnnotation]))
	if number < firstRequester {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if gone {
		delete(d.pods[node], pod.UID)
		return
	}
	if d.pods[node] == nil {
		d.pods[node] = map[types.UID]podresourcesapi.Pod{}
	}
	d.pods[node][pod.UID] = podresourcesapi.Pod{Namespace: pod.Namespace, Name: pod.Name, Containers: []podresourcesapi.Container{{
		Name: podmeta.ServingContainer, Devices: map[string][]string{string(podmeta.ResourceGPU): gpusOfRequester(node, number)},
	}}}
}

// of are the Pods of a node that have devices.
func (d *devices) of(node int) []podresourcesapi.Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.pods[node]))
}
