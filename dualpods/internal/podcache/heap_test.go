package podcache

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// manyPods is how many Pods BenchmarkHeap holds.
const manyPods = 10_000

// BenchmarkHeap tells the heap of ten thousand Pods, as client-go's cache holds them and compact.
// The Pods are of one Deployment, with and without the token of a ServiceAccount.
func BenchmarkHeap(b *testing.B) {
	for _, kind := range []struct {
		name  string
		token bool
		make  func(*corev1.Pod)
	}{
		{"whole", false, func(*corev1.Pod) {}},
		{"compact", false, Compact},
		{"token whole", true, func(*corev1.Pod) {}},
		{"token compact", true, Compact},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				pods := make([]*corev1.Pod, manyPods)
				for n := range pods {
					pods[n] = decoded(b, serialised(b, n, kind.token))
					kind.make(pods[n])
				}
				b.ReportMetric(float64(heap()-before)/1e6, "MB")
				runtime.KeepAlive(pods)
			}
		})
	}
}

// BenchmarkDecode tells what an event of a Pod costs without Compact, and with it.
func BenchmarkDecode(b *testing.B) {
	for name, do := range map[string]func(*corev1.Pod){"whole": func(*corev1.Pod) {}, "compact": Compact} {
		b.Run(name, func(b *testing.B) {
			first := compact(b, requester(0))
			event := serialised(b, 1, true)
			b.ReportAllocs()
			for b.Loop() {
				do(decoded(b, event))
			}
			runtime.KeepAlive(first)
		})
	}
}

func serialised(b *testing.B, n int, token bool) []byte {
	b.Helper()
	pod := requester(n)
	if !token {
		c := &pod.Spec.Containers[0]
		pod.Spec.Volumes, c.VolumeMounts = pod.Spec.Volumes[:1], c.VolumeMounts[:1]
		pod.Status.ContainerStatuses[0].VolumeMounts = pod.Status.ContainerStatuses[0].VolumeMounts[:1]
	}
	event, err := pod.Marshal()
	require.NoError(b, err)
	return event
}

func decoded(b *testing.B, event []byte) *corev1.Pod {
	b.Helper()
	pod := &corev1.Pod{}
	require.NoError(b, pod.Unmarshal(event))
	return pod
}

func heap() int64 {
	for range 3 { // cleanups run after one collection, and free by the next
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
