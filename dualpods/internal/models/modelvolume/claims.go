package modelvolume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Index is the cache's index of Pods by whether they name the claim of a model.
const Index = "modelClaim"

// NamesOne is the value of Pods that name such a claim.
const NamesOne = "yes"

// Indexed returns a Pod's values in the index Index; nil: the Pod names no claim of a model.
// Finished Pods count, because Kubernetes keeps a claim for them too.
func Indexed(pod *corev1.Pod) []string {
	if len(naming(pod)) > 0 {
		return []string{NamesOne}
	}
	return nil
}

// ClaimOf returns the name of the claim of a cache, the same in every namespace.
func ClaimOf(cache string) string { return podmeta.ModelClaimPrefix + cache }

// Names reports whether a volume of a Pod is the model of a cache, and of which cache.
func Names(v *corev1.Volume) (cache string, is bool) {
	if v.PersistentVolumeClaim == nil {
		return "", false
	}
	return strings.CutPrefix(v.PersistentVolumeClaim.ClaimName, podmeta.ModelClaimPrefix)
}

// Named returns the caches whose claims a Pod names. It returns none for a finished Pod.
func Named(pod *corev1.Pod) []string {
	if podmeta.Finished(pod) {
		return nil
	}
	return naming(pod)
}

// naming returns the caches whose claims a Pod names.
func naming(pod *corev1.Pod) (caches []string) {
	for i := range pod.Spec.Volumes {
		if cache, is := Names(&pod.Spec.Volumes[i]); is && cache != "" && !slices.Contains(caches, cache) {
			caches = append(caches, cache)
		}
	}
	return caches
}

// Users are the unfinished Pods that name the claim of a cache, by cache and by node. Pods that
// the scheduler has not placed are under "".
type Users map[string]map[string][]string

// UsersOf returns the users among some Pods.
func UsersOf(pods []corev1.Pod) Users {
	users := Users{}
	for i := range pods {
		pod := &pods[i]
		for _, cache := range Named(pod) {
			if users[cache] == nil {
				users[cache] = map[string][]string{}
			}
			users[cache][pod.Spec.NodeName] = append(users[cache][pod.Spec.NodeName], "Pod "+pod.Namespace+"/"+pod.Name)
		}
	}
	for _, nodes := range users {
		for _, names := range nodes {
			slices.Sort(names)
		}
	}
	return users
}
