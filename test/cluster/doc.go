// Package cluster runs a real Kubernetes on this machine, without Docker and
// without a registry: etcd, the API server, controller-manager and scheduler,
// and nodes with a kubelet, containerd, CNI and kube-proxy.
//
// Everything of a cluster lives in namespaces of its own:
//
//	keeper                      in the machine's namespaces; claims a slot, makes the link to the cluster
//	└─ init                     PID 1 of the cluster: own network, mounts, processes
//	   ├─ etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//	   └─ node init             PID 1 of a node: own network, mounts, processes
//	      └─ containerd, kubelet, kube-proxy, GPU device plugin
//
// The kernel ends a namespace with its PID 1, and a PID 1 with its parent. So
// whatever ends the keeper, a SIGKILL too, ends every process, mount, address
// and route of the cluster; what is left are its control groups and its folder,
// which the keeper removes, or the next keeper that takes the slot.
//
// A cluster has a slot, a number from 0 to [Slots]-1, and with it the addresses
// 10.(100+slot).0.0/16:
//
//	10.S.0.1       API server and the other parts of the control plane
//	10.S.0.N       node N, from 11 on
//	10.S.0.254     this machine
//	10.S.N.0/24    the Pods of node N, from 11 on
package cluster
