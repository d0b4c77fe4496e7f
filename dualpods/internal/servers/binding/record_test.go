package binding

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestAttemptsBackOff(t *testing.T) {
	o := recorded()
	o.Attempt = Attempt{Asked: true, Over: true, Failure: "boom"}
	for n, pause := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 8: 128 * time.Second, 10: 5 * time.Minute, 200: 5 * time.Minute} {
		record := *o.Record
		record.Attempt, record.Failures = n+40, n-1
		o.Record = &record
		step := Decide(o)
		require.Equal(t, NextAttempt, step.Do)
		assert.Equal(t, n+41, step.Record.Attempt, "each attempt has a key of its own")
		assert.Equal(t, n, step.Record.Failures)
		assert.Equal(t, "boom", step.Record.Failure)
		assert.Equal(t, now.Add(pause), step.Record.RetryAt, n)
	}
}

func TestWhatFailedBeforeARequesterWasServedMakesNoLaterAttemptWaitLonger(t *testing.T) {
	failed := now.Add(-time.Hour)
	for name, e := range map[string]struct {
		waits    time.Time
		failures int
	}{
		"served since":                      {now.Add(-time.Second), 1},
		"it has waited since before":        {failed, 6},
		"its status does not say it waits":  {time.Time{}, 6},
		"served until the attempt was made": {failed.Add(time.Second), 6},
	} {
		o := but(with("sleeping"), func(o *Observation) {
			o.Attempt = Attempt{Asked: true, Over: true}
			o.Record.Attempt, o.Record.Failures, o.Record.Failure, o.Record.RetryAt = 9, 5, "boom", failed.Add(time.Minute)
			o.Requester.WaitsSince = e.waits
		})
		step := Decide(o)
		require.Equal(t, "not awake any more", step.Rule)
		assert.Equal(t, 10, step.Record.Attempt)
		assert.Equal(t, e.failures, step.Record.Failures, name)
		assert.Equal(t, now.Add(pauseAfter(firstPause, e.failures)), step.Record.RetryAt, name)
	}
}

func TestAnOutdatedAttemptIsFollowedAtOnceByOneThatAsksForTheOther(t *testing.T) {
	there := with("sleeping")
	there.Instance.AsleepAt = 70
	for _, e := range []struct {
		o       Observation
		makes   bool // the attempt that is refused
		code    string
		logFrom int64
	}{
		{there, true, launcherapi.CodeExists, 70},
		{recorded(), true, launcherapi.CodeExists, atItsEnd}, // the stream has not told of it yet
		{recorded(), false, launcherapi.CodeNotFound, 0},
		{there, false, launcherapi.CodeNotFound, 0}, // nor that it is gone
	} {
		o := but(e.o, func(o *Observation) { o.Record = new(*o.Record) })
		refusedFor(e.makes, e.code)(&o)
		step := Decide(o)
		require.Equal(t, NextAttempt, step.Do)
		assert.Equal(t, 2, step.Record.Attempt)
		assert.Equal(t, !e.makes, step.Record.New)
		assert.Equal(t, e.logFrom, step.Record.LogFrom)
		assert.Zero(t, step.Record.RetryAt, "there is no pause")
		assert.Empty(t, step.Record.Failure, "nobody is told of a failure")
	}
}

func TestAnAttemptIsAskedForInTheSameWordsThoughAnnotationsAreEdited(t *testing.T) {
	o := fresh()
	o.Form.Annotations = map[string]string{"hotseat.dev/pinned": "true"}
	record := o.newRecord()
	edited := o.Form
	edited.Annotations = nil
	assert.Equal(t, "true", swapRequest(&record, edited).In.Annotations["hotseat.dev/pinned"])
	o.Record, o.Form = &record, edited
	next := o.nextAttempt("it failed").Record
	assert.NotContains(t, swapRequest(&next, edited).In.Annotations, "hotseat.dev/pinned", "the next attempt is of what is asked for now")
}

func TestFromWhereAModelComesIsSaidByTheRequesterOrElseByItsNamespace(t *testing.T) {
	for _, c := range []struct{ own, usual, asked string }{{"", "", ""}, {"", "off", "off"}, {"require", "off", "require"}, {"auto", "off", "auto"}} {
		o := fresh()
		o.Form.ModelCache, o.ModelCache = c.own, c.usual
		record := o.newRecord()
		o.ModelCache = "of now"
		assert.Equal(t, c.asked, swapRequest(&record, o.Form).In.ModelCache, "%+v: in the same words", c)
		woken := record
		woken.New = false
		assert.Empty(t, swapRequest(&woken, o.Form).In.ModelCache, "what is there has its model")
		if c.own == "" {
			o.Record = &record
			assert.Equal(t, "of now", o.nextAttempt("it failed").Record.ModelCache)
		}
	}
}

func TestWhatServesTellsFromWhereItsModelCame(t *testing.T) {
	o := servedOne()
	o.Instance.ModelFrom, o.Instance.ModelWhy = "source", "there is no model org/m"
	s := o.servingStatus(podmeta.Status{})
	assert.Equal(t, "source", s.ModelFrom)
	assert.Equal(t, "there is no model org/m", s.ModelWhy)
	o.Instance = nil
	assert.Empty(t, o.servingStatus(podmeta.Status{}).ModelFrom)
}

func TestTheCacheCountsWhereNobodyElseSaysFromWhereAModelComes(t *testing.T) {
	for name, c := range map[string]struct {
		own, says, asked string
		asks             bool // the cache
	}{
		"nobody says anything":    {"", "", "require", true},
		"its namespace says auto": {"", "auto", "require", true},
		"off":                     {"", "off", "off", false},
		"require":                 {"", "require", "require", false},
		"the requester says auto": {"auto", "require", "auto", false},
	} {
		ctrl := &Controller{opts: Options{
			ModelCache: func(context.Context, string) (string, []podmeta.Problem) { return c.says, nil },
			Keeper: func(_ context.Context, model modelref.Name, node string) (*dualpods.ModelKeeper, []podmeta.Problem) {
				assert.True(t, c.asks, name)
				return map[string]*dualpods.ModelKeeper{"org/model": {Name: "kept", Node: node}}[model.Model], nil
			},
		}}
		o := fresh()
		o.Form.ModelCache = c.own
		ctrl.fromWhere(t.Context(), &o, "ns")
		assert.Equal(t, c.asks, o.Keeper != nil, name)
		assert.Equal(t, c.asked, o.newRecord().ModelCache, name)
		o = fresh()
		o.Form.Args = []string{"org/other"} // which no cache keeps
		if c.asks {
			ctrl.fromWhere(t.Context(), &o, "ns")
			assert.Equal(t, c.says, o.newRecord().ModelCache, name)
		}
	}
	wrong := []podmeta.Problem{{Message: "cannot be read"}}
	ctrl := &Controller{opts: Options{Keeper: func(context.Context, modelref.Name, string) (*dualpods.ModelKeeper, []podmeta.Problem) {
		return nil, wrong
	}}}
	o := fresh()
	ctrl.fromWhere(t.Context(), &o, "ns")
	assert.Equal(t, wrong, o.Problems)
	o = recorded()
	ctrl.fromWhere(t.Context(), &o, "ns")
	assert.Empty(t, o.Problems, "one that is bound is served on")
}

func TestALauncherSaysWhetherItHasAModelWhole(t *testing.T) {
	l := &launcherPod{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "l"}}}
	assert.Contains(t, l.copyOf(modelref.Name{Model: "org/m"}).Why, "launcher l has no model store")
	l.pod.Labels = map[string]string{podmeta.LabelModelNodeGroup: "all"}
	l.view.ModelsLost, l.view.WhyNoModels = now, "connection refused"
	assert.Equal(t, Copy{Silent: now, Why: "launcher l does not say what models it has: connection refused"}, l.copyOf(modelref.Name{Model: "org/m"}))
	l.view.Models = map[string]nodeview.Model{"1": nodeview.NewModel(launcherapi.Model{URI: "hf://org/m", Refs: []string{"main"}, State: launcherapi.ModelReady})}
	assert.Equal(t, Copy{Whole: true}, l.copyOf(modelref.Name{Model: "org/m"}))
	assert.Equal(t, Copy{}, l.copyOf(modelref.Name{Model: "org/other"}))
}
