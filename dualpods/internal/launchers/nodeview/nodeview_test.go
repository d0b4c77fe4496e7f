package nodeview

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/patience"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(hostsEnv); how != "" {
		serveBench(how)
	}
	goleak.VerifyTestMain(m)
}

func TestAViewFollowsWhatTheLauncherTells(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	v := s.until("what there is is listed", "one", func(v View) bool { return v.Connected && len(v.Instances) == 1 })
	assert.Equal(t, []string{"GPU-0", "GPU-1"}, v.GPUs)
	assert.Equal(t, "awake", v.Instances["a"].State)

	l.put("a", "sleeping")
	l.put("b", "starting")
	v = s.until("changes are told", "one", func(v View) bool { return v.Instances["b"].State == "starting" })
	assert.Equal(t, "sleeping", v.Instances["a"].State)
	assert.Equal(t, l.now(), v.Revision)
	l.remove("a")
	s.until("a deletion is told", "one", func(v View) bool { return len(v.Instances) == 1 && v.Revision == l.now() })
	assert.Equal(t, "sleeping", v.Instances["a"].State, "a View that was given does not change")
	list, err := s.Client("one").List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list.Instances, 1)

	s.Forget("one")
	assert.Equal(t, View{}, s.View("one"))
	assert.Nil(t, s.Client("one"))
}

func TestAStreamThatBreaksOffIsListedAnewAndUntilThenSaidToBe(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })

	l.refuse(http.StatusServiceUnavailable)
	l.breakOff()
	v := s.until("the loss is said", "one", func(v View) bool { return !v.Connected && v.Why != "" })
	assert.Equal(t, "awake", v.Instances["a"].State, "what was so when it broke off")
	assert.False(t, v.Lost.IsZero())
	l.remove("a")
	l.put("b", "awake")
	l.refuse(0)
	v = s.until("it is up again", "one", func(v View) bool { return v.Connected })
	assert.NotContains(t, v.Instances, "a")
	assert.Contains(t, v.Instances, "b")
}

func TestARevisionThatTheLauncherNoLongerHasIsListedAnew(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	l.forgetOnce()
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	assert.GreaterOrEqual(t, l.lists(), 2)
	l.put("a", "sleeping")
	s.until("it tells", "one", func(v View) bool { return v.Instances["a"].State == "sleeping" })
}

func TestAStreamThatFallsSilentIsLost(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{Heartbeat: time.Second})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	l.fallSilent()
	l.refuse(http.StatusServiceUnavailable) // who asks anew; the stream itself stays open
	s.until("the loss is said", "one", func(v View) bool { return !v.Connected })
}

func TestALauncherThatHangsSlowsNoOtherAndNoClose(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer hanging.Close()
	l := newHost(t)
	s := newSet(t, Options{})
	for _, key := range []string{"h1", "h2", "h3"} {
		s.Watch(key, Target{Address: hanging.Addr().String()})
	}
	s.Watch("one", l.target())
	s.until("the other one is up", "one", func(v View) bool { return v.Connected })
	l.put("a", "awake")
	s.until("the other one tells", "one", func(v View) bool { return v.Instances["a"].State == "awake" })
	assert.False(t, s.View("h1").Connected)
	watched, connected := s.Streams()
	assert.Equal(t, []int{4, 1}, []int{watched, connected})
	s.Close() // which must not wait for an answer: the leak check and the test's end say so
	assert.Nil(t, s.Client("one"))
}

func TestAWrongTokenIsSaidAndTheRightOneWatchedAnew(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{})
	wrong := l.target()
	wrong.Token = "guessed"
	s.Watch("one", wrong)
	v := s.until("the refusal is said", "one", func(v View) bool { return v.Why != firstWords })
	assert.False(t, v.Connected)
	assert.Contains(t, v.Why, "the token is not the one")
	assert.NotContains(t, v.Why, "guessed")
	s.Watch("one", l.target())
	s.until("the right one is let in", "one", func(v View) bool { return v.Connected })
}

func TestALauncherWhoseStreamEndsAtOnceIsAskedLessAndLessOften(t *testing.T) {
	l := newHost(t)
	l.refuseStreams()
	s := newSet(t, Options{})
	begun := time.Now()
	s.Watch("one", l.target())
	require.Eventually(t, func() bool { return l.lists() >= 6 }, patience.Wait(), time.Millisecond)
	least := firstPause * (1 + 2 + 4 + 8 + 16) // before the sixth
	assert.GreaterOrEqual(t, time.Since(begun), least)
}

func TestALauncherWhoseEventDoesNotEndIsLostUntilItTellsOthers(t *testing.T) {
	l := newHost(t)
	l.neverEnd(true)
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	tooLong := func(v View) bool { return !v.Connected && strings.Contains(v.Why, "an event is longer than 32 MiB") }
	first := s.until("the event is given up, and people are told why", "one", tooLong)
	listed := l.lists()
	again := s.until("it is asked again", "one", func(v View) bool { return tooLong(v) && l.lists() > listed+1 })
	assert.Equal(t, first.Lost, again.Lost, "it has been lost ever since")
	l.neverEnd(false)
	l.put("a", "awake")
	s.until("it is up again", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	l.put("a", "sleeping")
	s.until("it tells", "one", func(v View) bool { return v.Instances["a"].State == "sleeping" })
}

func TestALauncherWhoseStreamHeldIsLostFromItsEndOn(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	up := s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	s.until("it holds", "one", func(View) bool { return time.Since(up.Lost) > 2*longestPause })
	l.refuse(http.StatusServiceUnavailable)
	ended := time.Now()
	l.breakOff()
	v := s.until("the loss is said", "one", func(v View) bool { return !v.Connected && v.Why != "" })
	assert.False(t, v.Lost.Before(ended))
}

func TestTheModelsOfALauncherAreKnownOnceItHasToldOfAll(t *testing.T) {
	l := newHost(t)
	l.change(func() { l.models = map[string]launcherapi.Model{"a": {ID: "a", State: launcherapi.ModelDownloading}} })
	told := make(chan string, 100)
	s := newSet(t, Options{ModelsChanged: func(key string, _ bool) { told <- key }})
	target := l.target()
	s.Watch("without", target)
	target.Models = true
	began := time.Now()
	s.Watch("one", target)
	v := s.View("one")
	assert.False(t, v.ModelsLost.Before(began), "they are not known from the watch's beginning on")
	v = s.until("its models are known", "one", func(v View) bool { return v.Models != nil })
	assert.True(t, v.ModelsAsked)
	assert.False(t, s.View("without").ModelsAsked)
	assert.Equal(t, launcherapi.ModelDownloading, v.Models["a"].State)
	assert.Equal(t, "one", <-told)
	l.change(func() {
		l.models = map[string]launcherapi.Model{"a": {ID: "a", State: launcherapi.ModelReady}, "b": {ID: "b"}}
	})
	v = s.until("what changes is told", "one", func(v View) bool { return len(v.Models) == 2 })
	s.until("each change", "one", func(v View) bool { return v.Models["a"].State == launcherapi.ModelReady })
	assert.NotContains(t, s.View("without").Models, "a")
	l.change(func() { l.models = map[string]launcherapi.Model{} })
	s.until("what is removed is not there", "one", func(v View) bool { return v.Models != nil && len(v.Models) == 0 })
	ends := time.Now()
	l.change(func() { l.noModels = true })
	v = s.until("what a launcher does not tell is not known", "one", func(v View) bool { return v.Models == nil })
	assert.NotEmpty(t, v.NoModels)
	assert.False(t, v.ModelsLost.Before(ends), "since its stream ended")
	assert.True(t, v.Connected, "its instances are known all the same")
	l.change(func() { l.noModels = false })
	s.until("until it tells again", "one", func(v View) bool { return v.Models != nil && v.NoModels == "" })
}
