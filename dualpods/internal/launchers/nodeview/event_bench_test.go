package nodeview

import (
	"fmt"
	"testing"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// instanceAt is one of a launcher's instances at a revision.
func instanceAt(n int, revision uint64) launcherapi.Instance {
	return launcherapi.Instance{
		InstanceID: fmt.Sprint("instance-", n), State: "sleeping", GPUUUIDs: []string{fmt.Sprint("GPU-", n%8)}, Annotations: map[string]string{"revision": fmt.Sprint(revision)},
		StateSince: time.Unix(int64(revision), 0), Revision: revision,
	}
}

// holding returns a Set that watches a launcher, of key "one", without a stream: the caller applies
// its events.
func holding(instances int) (*Set, *launcher) {
	l := &launcher{key: "one", view: View{Connected: true, Instances: map[string]launcherapi.Instance{}}}
	for n := range instances {
		i := instanceAt(n, uint64(n))
		l.view.Instances[i.InstanceID], l.view.Revision = i, i.Revision
	}
	s := New(Options{})
	s.all[l.key] = l
	return s, l
}

// BenchmarkEvent reports what an event of a stream costs, and what it costs with a reader that reads
// after each event.
func BenchmarkEvent(b *testing.B) {
	for _, instances := range []int{100, 1000} {
		s, l := holding(instances)
		events := make([]launcherapi.WatchEvent, instances)
		for n := range events {
			events[n] = launcherapi.WatchEvent{Type: launcherapi.EventUpdated, Object: instanceAt(n, uint64(instances+n))}
		}
		for what, read := range map[string]func(id string){
			"alone":             func(string) {},
			"and one instance":  func(id string) { _ = s.One("one", id) },
			"and all instances": func(string) { _ = s.View("one") },
			"and its revision":  func(string) { _ = s.Pick("one", nil).Revision },
		} {
			b.Run(fmt.Sprintf("%d/%s", instances, what), func(b *testing.B) {
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					event := events[n%instances]
					l.apply(event)
					read(event.Object.InstanceID)
				}
			})
		}
	}
}
