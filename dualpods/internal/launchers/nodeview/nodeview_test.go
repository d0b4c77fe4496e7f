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
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(hostsEnv); how != "" {
		serveBench(how)
	}
	goleak.VerifyTestMain(m)
}

func TestViewFollowsTheLauncher(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	v := s.until("the instances are listed", "one", func(v View) bool { return v.Connected && len(v.Instances) == 1 })
	assert.Equal(t, []string{"GPU-0", "GPU-1"}, v.GPUs)
	assert.Equal(t, "awake", v.Instances["a"].State)

	l.put("a", "sleeping")
	l.put("b", "starting")
	v = s.until("changes arrive", "one", func(v View) bool { return v.Instances["b"].State == "starting" })
	assert.Equal(t, "sleeping", v.Instances["a"].State)
	assert.Equal(t, l.now(), v.Revision)
	l.remove("a")
	s.until("a deletion arrives", "one", func(v View) bool { return len(v.Instances) == 1 && v.Revision == l.now() })
	assert.Equal(t, "sleeping", v.Instances["a"].State, "a returned View does not change")
	list, err := s.Client("one").List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list.Instances, 1)

	s.Forget("one")
	assert.Equal(t, View{}, s.View("one"))
	assert.Nil(t, s.Client("one"))
}

func TestBrokenStreamIsReportedAndListedAgain(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })

	l.refuse(http.StatusServiceUnavailable)
	l.breakOff()
	v := s.until("the break is reported", "one", func(v View) bool { return !v.Connected && v.Why != "" })
	assert.Equal(t, "awake", v.Instances["a"].State, "the View is that of the break")
	assert.False(t, v.Lost.IsZero())
	l.remove("a")
	l.put("b", "awake")
	l.refuse(0)
	v = s.until("it is up again", "one", func(v View) bool { return v.Connected })
	assert.NotContains(t, v.Instances, "a")
	assert.Contains(t, v.Instances, "b")
}

func TestGoneRevisionIsListedAgain(t *testing.T) {
	l := newHost(t)
	l.put("a", "awake")
	l.forgetOnce()
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	assert.GreaterOrEqual(t, l.lists(), 2)
	l.put("a", "sleeping")
	s.until("an event arrives", "one", func(v View) bool { return v.Instances["a"].State == "sleeping" })
}

func TestSilentStreamIsBroken(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{Heartbeat: time.Second})
	s.Watch("one", l.target())
	s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	l.fallSilent()
	l.refuse(http.StatusServiceUnavailable) // new calls; the stream itself stays open
	s.until("the break is reported", "one", func(v View) bool { return !v.Connected })
}

func TestHangingLauncherDelaysNoOtherAndNoClose(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, no server answers
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
	s.until("the other one sends an event", "one", func(v View) bool { return v.Instances["a"].State == "awake" })
	assert.False(t, s.View("h1").Connected)
	watched, connected := s.Streams()
	assert.Equal(t, []int{4, 1}, []int{watched, connected})
	s.Close() // must not wait for an answer; the leak check and the end of the test show it
	assert.Nil(t, s.Client("one"))
}

func TestWrongTokenIsReportedUntilItIsCorrected(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{})
	wrong := l.target()
	wrong.Token = "guessed"
	s.Watch("one", wrong)
	v := s.until("the refusal is reported", "one", func(v View) bool { return v.Why != firstWords })
	assert.False(t, v.Connected)
	assert.Contains(t, v.Why, "the token is not the one")
	assert.NotContains(t, v.Why, "guessed")
	s.Watch("one", l.target())
	s.until("the right token is accepted", "one", func(v View) bool { return v.Connected })
}

func TestStreamThatEndsAtOnceBacksOff(t *testing.T) {
	l := newHost(t)
	l.refuseStreams()
	s := newSet(t, Options{})
	begun := time.Now()
	s.Watch("one", l.target())
	require.Eventually(t, func() bool { return l.lists() >= 6 }, patience.Wait(), time.Millisecond)
	least := firstPause * (1 + 2 + 4 + 8 + 16) // before the sixth list
	assert.GreaterOrEqual(t, time.Since(begun), least)
}

func TestEndlessEventBreaksTheStream(t *testing.T) {
	l := newHost(t)
	l.neverEnd(true)
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	tooLong := func(v View) bool { return !v.Connected && strings.Contains(v.Why, "an event is longer than 4 MiB") }
	first := s.until("the event is dropped, and the View says why", "one", tooLong)
	listed := l.lists()
	again := s.until("it is listed again", "one", func(v View) bool { return tooLong(v) && l.lists() > listed+1 })
	assert.Equal(t, first.Lost, again.Lost, "it is lost since the first break")
	l.neverEnd(false)
	l.put("a", "awake")
	s.until("it is up again", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	l.put("a", "sleeping")
	s.until("an event arrives", "one", func(v View) bool { return v.Instances["a"].State == "sleeping" })
}

func TestLauncherIsLostSinceItsStableStreamEnded(t *testing.T) {
	l := newHost(t)
	s := newSet(t, Options{})
	s.Watch("one", l.target())
	up := s.until("the stream is up", "one", func(v View) bool { return v.Connected && l.streams() == 1 })
	s.until("it holds", "one", func(View) bool { return time.Since(up.Lost) > 2*longestPause })
	l.refuse(http.StatusServiceUnavailable)
	ended := time.Now()
	l.breakOff()
	v := s.until("the break is reported", "one", func(v View) bool { return !v.Connected && v.Why != "" })
	assert.False(t, v.Lost.Before(ended))
}

func TestModelsAreKnownAfterTheFirstFullList(t *testing.T) {
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
	assert.False(t, v.ModelsLost.Before(began), "they are unknown since the watch began")
	v = s.until("its models are known", "one", func(v View) bool { return v.Models != nil })
	assert.True(t, v.ModelsAsked)
	assert.False(t, s.View("without").ModelsAsked)
	assert.Equal(t, launcherapi.ModelDownloading, v.Models["a"].State)
	assert.Equal(t, "one", <-told)
	l.change(func() {
		l.models = map[string]launcherapi.Model{"a": {ID: "a", State: launcherapi.ModelReady}, "b": {ID: "b"}}
	})
	v = s.until("a change arrives", "one", func(v View) bool { return len(v.Models) == 2 })
	s.until("each change arrives", "one", func(v View) bool { return v.Models["a"].State == launcherapi.ModelReady })
	assert.NotContains(t, s.View("without").Models, "a")
	l.change(func() { l.models = map[string]launcherapi.Model{} })
	s.until("a removed model is gone", "one", func(v View) bool { return v.Models != nil && len(v.Models) == 0 })
	ends := time.Now()
	l.change(func() { l.noModels = true })
	v = s.until("its models are unknown when the stream ends", "one", func(v View) bool { return v.Models == nil })
	assert.NotEmpty(t, v.WhyNoModels)
	assert.False(t, v.ModelsLost.Before(ends), "since its stream ended")
	assert.True(t, v.Connected, "its instances are still known")
	l.change(func() { l.noModels = false })
	s.until("its models are known again", "one", func(v View) bool { return v.Models != nil && v.WhyNoModels == "" })
}
