// Package cluster runs a real Kubernetes on this machine, without Docker and
// without a registry: etcd, the API server, and with at least one node also the
// controller-manager, the scheduler, and for each node a kubelet, containerd,
// CNI, kube-proxy and a device plugin that advertises simulated GPUs.
//
// Everything of a cluster lives in namespaces of its own:
//
//	keeper           PID 1 of the cluster: own network, mounts, processes
//	├─ etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//	└─ node          PID 1 of a node: own network, mounts, processes
//	   └─ containerd, kubelet, kube-proxy, gpu-plugin, and kube-router where
//	      NetworkPolicies are asked for
//
// The kernel ends a namespace with its PID 1. So whatever ends the keeper, a
// SIGKILL too, ends every process, mount, address and route of the cluster. What
// can be left then, control groups and the cluster's folder, the next [Up] or
// [Sweep] removes.
//
// Nothing leads from the cluster's network to the machine's, so all clusters
// have the same addresses. The machine reaches the API server at a port on
// 127.0.0.1, which the keeper forwards; [Cluster.Dial] reaches everything else:
//
//	10.100.0.1      API server and the rest of the control plane
//	10.100.1.N      node N, from 1 on
//	10.101.N.0/24   the Pods of node N
//	10.96.0.0/16    services
//
// A node that is deleted comes back in a few seconds: its kubelet is run again, and
// registers it. [Cluster.Stop] of the kubelet keeps the node away.
//
// There is no DNS in the cluster: Pods reach services by address. Images hold
// our own static programs, see [Cluster.LoadImage].
package cluster
