package form

import (
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// followSubgroup has the TPU variables that LeaderWorkerSet's webhook added to a container follow
// the Pod's label subgroup-index: TPU_WORKER_ID, TPU_WORKER_HOSTNAMES and TPU_PROCESS_ADDRESSES. The
// webhook computes label and variables by two rules, which disagree for some sizes, and gives a
// leader the ID -1. The hosts are the Pods with the same label that request TPUs. Variables of other
// Pods, and those that the template sets itself, stay.
func followSubgroup(pod *corev1.Pod, c *corev1.Container) {
	hosts, id := subgroupHosts(pod)
	value := func(name string) *corev1.EnvVar {
		at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if at < 0 {
			return &corev1.EnvVar{}
		}
		return &c.Env[at]
	}
	if id < 0 || value("TPU_NAME").Value == "" { // the webhook adds all or none
		return
	}
	var processes []string
	for _, host := range hosts {
		processes = append(processes, net.JoinHostPort(host, value(podmeta.EnvTPUProcessPort).Value))
	}
	value(podmeta.EnvTPUWorkerID).Value = strconv.Itoa(id)
	value(podmeta.EnvTPUWorkerHostnames).Value = strings.Join(hosts, ",")
	value(podmeta.EnvTPUProcessAddresses).Value = strings.Join(processes, ",")
}

// mostPods bounds the size of a group that is believed. Anybody who creates Pods can write the
// annotation, and the largest slices of TPUs have some thousands of hosts.
const mostPods = 10_000

// subgroupHosts returns the hosts of the subgroup of a Pod of a LeaderWorkerSet that requests TPUs,
// and which of them it is; -1: it is in no subgroup, or what LeaderWorkerSet wrote cannot be read, or
// is more than mostPods.
func subgroupHosts(pod *corev1.Pod) (hosts []string, id int) {
	size, ok := number(pod.Annotations[podmeta.AnnotationLWSSize])
	of, divided := number(pod.Annotations[podmeta.AnnotationSubgroupSize])
	index, labelled := number(pod.Labels[podmeta.LabelSubgroupIndex])
	worker, placed := number(pod.Labels[podmeta.LabelLWSWorkerIndex])
	if pod.Labels[podmeta.LabelLWSName] == "" || !ok || !divided || !labelled || !placed || of < 1 || size > mostPods {
		return nil, -1
	}
	leader := pod.Name
	if worker > 0 {
		leader = pod.Annotations[podmeta.AnnotationLWSLeaderName]
	}
	id = -1
	for w := range size {
		asks := w > 0 || worker == 0 || pod.Annotations[podmeta.AnnotationLWSLeaderTPUs] == "true"
		if !asks || labelOf(w, size, of) != index {
			continue
		}
		if w == worker {
			id = len(hosts)
		}
		name := leader
		if w > 0 {
			name += "-" + strconv.Itoa(w)
		}
		hosts = append(hosts, name+"."+pod.Spec.Subdomain)
	}
	return hosts, id
}

// labelOf returns the label subgroup-index of Pod w, as LeaderWorkerSet v0.9.0 computes it.
func labelOf(w, size, of int) int {
	if (size-1)%of == 0 {
		return max(w-1, 0) / of
	}
	return w / of
}

func number(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0
}
