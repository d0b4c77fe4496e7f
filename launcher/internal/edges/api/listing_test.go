package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// full is an instance of which every field says something.
func full(id string) launcherapi.Instance {
	one, text, at := 1, "--model <m> & more", time.Unix(1, 2).UTC()
	return launcherapi.Instance{
		InstanceID: id, Status: launcherapi.StatusRunning, State: "awake", Reason: "r", Cause: "c", ExitCode: &one, LastLogLines: []string{"l"},
		Options: &text, Args: []string{"]"}, GPUUUIDs: []string{"g"}, EnvVars: map[string]launcherapi.EnvValue{"A": {Value: "b"}},
		Annotations: map[string]string{"a": "b"}, Engine: "vllm", StartMethod: "auto", StartedBy: "exec", Rank: &launcherapi.Rank{Group: "g", Size: 2, Entry: "h:1"}, Leased: []int{1},
		Model: "m", ServedModelNames: []string{"s"}, ModelCache: "auto", ModelFrom: "cache", ModelWhy: "w", ModelID: "i", ModelPath: "/p", SleepLevel: 1, Host: "127.0.0.1", Port: 1, PID: 1, LogName: "n", AsleepAt: 1, SwapID: "s",
		InFlight: 1, Held: 1, CreatedAt: at, StateSince: at, LastUsedAt: &at, Timings: []launcherapi.PhaseTime{{Name: "p"}},
		GPUBytes: map[string]uint64{"g": 1}, HostBytes: 1, Revision: 1,
	}
}

// other gives a value that is not the given one.
func other(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	changed := reflect.New(v.Type()).Elem()
	changed.Set(v)
	switch v.Kind() {
	case reflect.String:
		changed.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		changed.SetInt(v.Int() + 1)
	case reflect.Uint64:
		changed.SetUint(v.Uint() + 1)
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		changed.SetZero()
	default:
		require.Fail(t, "there is no other value of a "+v.Kind().String())
	}
	return changed
}

func TestAListShowsEveryChangeOfAnInstance(t *testing.T) {
	fields := reflect.TypeFor[launcherapi.Instance]()
	for n := range fields.NumField() {
		before, after := full("a"), full("a")
		field := reflect.ValueOf(&after).Elem().Field(n)
		require.False(t, field.IsZero(), "full leaves %s out", fields.Field(n).Name)
		field.Set(other(t, field))
		var l listing
		for _, all := range [][]launcherapi.Instance{{before}, {after}} {
			got, err := l.encode(all, 7)
			require.NoError(t, err)
			assert.Equal(t, whole(t, all, 7), joined(got), fields.Field(n).Name)
		}
	}
}

func whole(t *testing.T, all []launcherapi.Instance, revision uint64) string {
	t.Helper()
	list := launcherapi.InstanceList{Revision: revision, TotalInstances: len(all), Instances: all}
	for _, i := range all {
		if i.Status == launcherapi.StatusRunning {
			list.RunningInstances++
		}
	}
	var want bytes.Buffer
	require.NoError(t, encode(&want, list))
	return want.String()
}

func joined(pieces encoded) string { return string(bytes.Join(pieces, nil)) }

func TestAListIsTheDocumentOfItsInstances(t *testing.T) {
	var l listing
	a, b, c := full("a"), full("b"), full("c")
	for revision, all := range [][]launcherapi.Instance{{}, {a}, {a, b, c}, {c, a}, {}, {b}} {
		got, err := l.encode(all, uint64(revision))
		require.NoError(t, err)
		assert.Equal(t, whole(t, all, uint64(revision)), joined(got))
		assert.True(t, json.Valid([]byte(joined(got))))
		assert.Len(t, *l.written.Load(), len(all), "nothing is kept of those that are gone")
	}
}

func TestAListEncodesOnlyWhatHasChanged(t *testing.T) {
	var l listing
	a, b := full("a"), full("b")
	kept := func() (of [2]*byte) {
		_, err := l.encode([]launcherapi.Instance{a, b}, 1)
		require.NoError(t, err)
		for n, id := range []string{"a", "b"} {
			of[n] = &(*l.written.Load())[id].json[0]
		}
		return of
	}
	first := kept()
	b.InFlight++
	second := kept()
	assert.Same(t, first[0], second[0])
	assert.NotSame(t, first[1], second[1])
}

func BenchmarkAListOfTwoHundred(b *testing.B) {
	var l listing
	all := make([]launcherapi.Instance, 200)
	for n := range all {
		all[n] = full(string(rune('A' + n)))
	}
	for b.Loop() {
		_, err := l.encode(all, 1)
		require.NoError(b, err)
	}
}
