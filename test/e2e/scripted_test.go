package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/launchertest"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// script makes calls of a launcher as a controller makes them, and tells in words
// what came of each, and of each instance which events there were.
func script(t *testing.T, c *launcherclient.Client) (answers []string, events map[string][]string) {
	t.Helper()
	list, err := c.List(t.Context())
	require.NoError(t, err)
	watching, leave := context.WithCancel(t.Context())
	events = map[string][]string{}
	over := make(chan struct{})
	var done sync.WaitGroup
	defer done.Wait()
	defer leave()
	done.Go(func() {
		for e, err := range c.Watch(watching, &list.Revision) {
			if err != nil {
				return
			}
			id, line := e.Object.InstanceID, fmt.Sprintf("%s %s %s", e.Type, e.Object.State, e.Object.Status)
			if e.Type == launcherapi.EventCreated {
				line = string(e.Type)
			}
			if told := events[id]; len(told) == 0 || told[len(told)-1] != line {
				events[id] = append(told, line)
			}
			if id == "b" && e.Type == launcherapi.EventDeleted {
				close(over) // the last thing that the script has done
				return
			}
		}
	})
	tell := func(what, result string, err error) {
		if err != nil {
			result = "refused: " + launcher.CodeOf(err)
		}
		answers = append(answers, what+": "+result)
	}
	shown := func(i launcherapi.Instance) string {
		return fmt.Sprintf("%s %s %s %v %v on %v", i.InstanceID, i.State, i.Status, i.Args, i.Annotations, i.GPUUUIDs)
	}
	swap := func(what, key string, in launcherapi.SwapIn) launcherapi.SwapResult {
		r, err := c.SwapOnce(t.Context(), key, launcherapi.SwapRequest{GPUUUIDs: []string{GPU(0)}, In: &in}, nil)
		result := r.Outcome
		if r.In != nil {
			result += ", in " + shown(*r.In)
		}
		for _, i := range r.Out {
			result += ", out " + shown(i)
		}
		tell(what, result, err)
		return r
	}
	gpus, err := c.GPUs(t.Context())
	require.NoError(t, err)
	tell("GPUs", fmt.Sprint(gpus.Source, gpus.GPUs[0].UUID, gpus.GPUs[0].Index, gpus.GPUs[0].Healthy, gpus.GPUs[1].UUID), nil)
	fresh := func(id string) launcherapi.SwapIn {
		return launcherapi.SwapIn{ID: id, Args: []string{"org/" + id}, Annotations: map[string]string{"hotseat.dev/made-for": "default/" + id}}
	}
	first := swap("make a", "1", fresh("a"))
	again := swap("make a, asked again", "1", fresh("a"))
	assert.Equal(t, first.SwapID, again.SwapID, "the same key is the same swap")
	swap("make b where a is awake", "2", fresh("b"))
	swap("wake a", "3", launcherapi.SwapIn{InstanceID: "a"})
	swap("wake a, which is awake", "4", launcherapi.SwapIn{InstanceID: "a"})
	swap("make b, which is there", "5", fresh("b"))
	swap("wake who is not there", "6", launcherapi.SwapIn{InstanceID: "c"})
	for _, what := range []string{"sleep a", "sleep a again"} {
		i, err := c.Sleep(t.Context(), "a", launcherapi.SleepRequest{})
		tell(what, shown(i), err)
	}
	_, err = c.Sleep(t.Context(), "c", launcherapi.SleepRequest{})
	tell("sleep who is not there", "done", err)
	_, err = c.Delete(t.Context(), "c")
	tell("delete who is not there", "done", err)
	all, err := c.List(t.Context())
	require.NoError(t, err)
	slices.SortFunc(all.Instances, func(x, y launcherapi.Instance) int { return int(x.InstanceID[0]) - int(y.InstanceID[0]) })
	for _, i := range all.Instances {
		tell("list", shown(i), nil)
	}
	i, err := c.Delete(t.Context(), "b")
	tell("delete b", shown(i), err)
	<-over
	return answers, events
}

func TestTheScriptedLauncherAnswersAsTheRealOneDoes(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--start-method", "exec")
	real, err := launcherclient.New(launcherclient.Options{Server: n.URL})
	require.NoError(t, err)
	defer real.Close()
	scripted := httptest.NewServer(launchertest.New(launchertest.Options{GPUs: []string{GPU(0), GPU(1)}}))
	defer scripted.Close()
	other, err := launcherclient.New(launcherclient.Options{Server: scripted.URL})
	require.NoError(t, err)
	defer other.Close()

	want, wantEvents := script(t, real)
	got, gotEvents := script(t, other)
	assert.Equal(t, want, got)
	assert.Equal(t, wantEvents, gotEvents)
}

func TestTheScriptedLauncherSaysWhenARevisionIsNotKept(t *testing.T) {
	t.Parallel()
	l := launchertest.New(launchertest.Options{GPUs: []string{GPU(0)}})
	server := httptest.NewServer(l)
	defer server.Close()
	c, err := launcherclient.New(launcherclient.Options{Server: server.URL})
	require.NoError(t, err)
	defer c.Close()
	for n := range 400 {
		_, err := c.Swap(t.Context(), launcherapi.SwapRequest{GPUUUIDs: []string{GPU(0)}, In: &launcherapi.SwapIn{ID: fmt.Sprint("i", n)}}, nil)
		require.NoError(t, err)
	}
	old := uint64(1)
	for _, err := range c.Watch(t.Context(), &old) {
		assert.True(t, launcherclient.IsGone(err), "%v", err)
	}
}

func TestAScriptedLauncherKeepsAsManyInstancesAsItMayHave(t *testing.T) {
	t.Parallel()
	var woke []bool
	l := launchertest.New(launchertest.Options{GPUs: []string{GPU(0)}, Most: 2, Swapped: func(_ string, w bool, _, _ time.Time) { woke = append(woke, w) }})
	server := httptest.NewServer(l)
	defer server.Close()
	c, err := launcherclient.New(launcherclient.Options{Server: server.URL})
	require.NoError(t, err)
	defer c.Close()
	swap := func(in launcherapi.SwapIn) {
		t.Helper()
		_, err := c.Swap(t.Context(), launcherapi.SwapRequest{GPUUUIDs: []string{GPU(0)}, In: &in}, nil)
		require.NoError(t, err)
	}
	swap(launcherapi.SwapIn{ID: "a"})
	swap(launcherapi.SwapIn{ID: "b"})
	swap(launcherapi.SwapIn{InstanceID: "a"})
	swap(launcherapi.SwapIn{ID: "c"})
	assert.Equal(t, []bool{false, false, true, false}, woke)
	list, err := c.List(t.Context())
	require.NoError(t, err)
	var there []string
	for _, i := range list.Instances {
		there = append(there, i.InstanceID)
	}
	assert.ElementsMatch(t, []string{"a", "c"}, there, "b slept longest")
}
