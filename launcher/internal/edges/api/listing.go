package api

import (
	"bytes"
	"maps"
	"slices"
	"sync/atomic"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// listing writes lists of instances. It keeps the JSON that it last wrote of each
// instance, so that among hundreds only those that have changed are encoded again.
// That JSON is the view of clients, which holds no secret.
type listing struct {
	written atomic.Pointer[map[string]*writtenInstance] // by id
}

type writtenInstance struct {
	view launcherapi.Instance
	json []byte
}

// encode writes the answer to a list call with detail.
func (l *listing) encode(all []launcherapi.Instance, revision uint64) (encoded, error) {
	list := launcherapi.InstanceList{Revision: revision, TotalInstances: len(all), Instances: []launcherapi.Instance{}}
	var before map[string]*writtenInstance
	if last := l.written.Load(); last != nil {
		before = *last
	}
	now := make(map[string]*writtenInstance, len(all))
	document := make(encoded, 1, 2*len(all)+2)
	for n := range all {
		view := &all[n]
		if view.Status == launcherapi.StatusRunning {
			list.RunningInstances++
		}
		w, known := before[view.InstanceID]
		if !known || !same(&w.view, view) {
			var text bytes.Buffer
			if err := encode(&text, view); err != nil {
				return nil, err
			}
			w = &writtenInstance{view: *view, json: bytes.TrimSpace(text.Bytes())}
		}
		now[view.InstanceID] = w
		if n > 0 {
			document = append(document, comma)
		}
		document = append(document, w.json)
	}
	l.written.Store(&now)
	var frame bytes.Buffer
	if err := encode(&frame, list); err != nil {
		return nil, err
	}
	inside := bytes.IndexByte(frame.Bytes(), ']') // the end of the list, which is empty and comes last
	document[0] = frame.Bytes()[:inside]
	return append(document, frame.Bytes()[inside:]), nil
}

var comma = []byte{','}

// same says whether two views of an instance have the same JSON.
func same(a, b *launcherapi.Instance) bool {
	return sameState(a, b) && sameSpec(a, b) && sameModel(a, b) && sameUse(a, b)
}

func sameState(a, b *launcherapi.Instance) bool {
	return a.Revision == b.Revision && a.State == b.State && a.StateSince.Equal(b.StateSince) && a.Status == b.Status &&
		a.Reason == b.Reason && a.Cause == b.Cause && equal(a.ExitCode, b.ExitCode) && slices.Equal(a.LastLogLines, b.LastLogLines) &&
		a.SleepLevel == b.SleepLevel && a.SwapID == b.SwapID && slices.Equal(a.Timings, b.Timings)
}

func sameSpec(a, b *launcherapi.Instance) bool {
	return a.InstanceID == b.InstanceID && a.CreatedAt.Equal(b.CreatedAt) && a.Engine == b.Engine &&
		equal(a.Options, b.Options) && slices.Equal(a.Args, b.Args) && slices.Equal(a.GPUUUIDs, b.GPUUUIDs) &&
		maps.Equal(a.EnvVars, b.EnvVars) && maps.Equal(a.Annotations, b.Annotations) &&
		a.StartMethod == b.StartMethod && equal(a.Rank, b.Rank)
}

func sameModel(a, b *launcherapi.Instance) bool {
	return a.Model == b.Model && slices.Equal(a.ServedModelNames, b.ServedModelNames) && a.ModelCache == b.ModelCache &&
		a.ModelFrom == b.ModelFrom && a.ModelWhy == b.ModelWhy && a.ModelID == b.ModelID && a.ModelPath == b.ModelPath
}

func sameUse(a, b *launcherapi.Instance) bool {
	return a.InFlight == b.InFlight && a.Held == b.Held && equal(a.LastUsedAt, b.LastUsedAt) &&
		a.Host == b.Host && a.Port == b.Port && slices.Equal(a.Leased, b.Leased) && a.PID == b.PID && a.StartedBy == b.StartedBy && a.LogName == b.LogName &&
		a.AsleepAt == b.AsleepAt && a.HostBytes == b.HostBytes && maps.Equal(a.GPUBytes, b.GPUBytes)
}

// equal says whether two pointers are both nil or point to equal values.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
