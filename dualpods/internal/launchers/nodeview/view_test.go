package nodeview

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// TestAViewIsReadWhileItChanges fails under -race if a reader shares memory with the events. It
// also fails if a reader gets instances of different moments: revision r changes instance r
// modulo the number of instances.
func TestAViewIsReadWhileItChanges(t *testing.T) {
	const instances, events = 10, 5000
	s, l := holding(instances)
	ofOneMoment := func(v View) bool {
		for id, i := range v.Instances {
			n, _ := strconv.Atoi(id[len("instance-"):])
			last := v.Revision - (v.Revision-uint64(n))%instances
			if i.Revision != last || i.Annotations["revision"] != fmt.Sprint(last) || i.StateSince.Unix() != int64(last) {
				return false
			}
		}
		return true
	}
	even := func(_ string, i launcherapi.Instance) bool { return i.GPUUUIDs[0] == "GPU-2" }
	over := make(chan struct{})
	var readers sync.WaitGroup
	for what, read := range map[string]func() View{
		"all":   func() View { return s.View("one") },
		"one":   func() View { return s.One("one", "instance-3") },
		"some":  func() View { return s.Pick("one", even) },
		"none":  func() View { return s.Pick("one", nil) },
		"added": func() View { v := s.View("one"); v.Instances["instance-3"] = instanceAt(3, 3); return View{} },
	} {
		readers.Go(func() {
			var before View
			for {
				v := read()
				if !assert.True(t, ofOneMoment(v), what) || !assert.True(t, ofOneMoment(before), "%s, after later events", what) {
					return
				}
				before = v
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for revision := uint64(instances); revision < events; revision++ {
		i := instanceAt(int(revision%instances), revision)
		l.apply(launcherapi.WatchEvent{Type: launcherapi.EventUpdated, Object: i})
	}
	close(over)
	readers.Wait()
	assert.Len(t, s.View("one").Instances, instances)
}

func TestAReaderGetsTheInstancesThatItAsksFor(t *testing.T) {
	s, l := holding(10)
	assert.Len(t, s.View("one").Instances, 10)
	one := s.One("one", "instance-3")
	assert.Equal(t, map[string]launcherapi.Instance{"instance-3": instanceAt(3, 3)}, one.Instances)
	assert.Equal(t, []any{true, uint64(9)}, []any{one.Connected, one.Revision})
	picked := s.Pick("one", func(id string, i launcherapi.Instance) bool { return id == i.InstanceID && i.Revision < 2 })
	assert.Len(t, picked.Instances, 2)
	for what, none := range map[string]View{"an unknown one": s.One("one", "another"), "none": s.Pick("one", nil)} {
		assert.Empty(t, none.Instances, what)
		assert.NotNil(t, none.Instances, "they are known")
	}
	l.apply(launcherapi.WatchEvent{Type: launcherapi.EventDeleted, Object: instanceAt(3, 10)})
	assert.Contains(t, one.Instances, "instance-3", "a View that was read does not change")
	assert.Empty(t, s.One("one", "instance-3").Instances)
	l.view.Instances = nil
	for what, unknown := range map[string]View{"all": s.View("one"), "one": s.One("one", "instance-3"), "none": s.Pick("one", nil)} {
		assert.Nil(t, unknown.Instances, what)
	}
	assert.Equal(t, View{}, s.One("two", "instance-3"))
}
