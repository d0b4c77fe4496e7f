package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// events returns the Events since it was called last.
func (s *site) events() (all []string) {
	for {
		select {
		case e := <-s.told.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

const fails = `{"state":"Waiting","reason":"AttemptFailed","message":"no memory","since":"2023-11-14T22:13:20Z"}`

func TestFailureOfAnEntryAndTheMoveToTheNextAreEvents(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, scaleDownDelaySeconds: 5}, specs: [{name: a}, {name: b}]}`)
	s.count.Held = 1
	s.pass(0)
	assert.Empty(t, s.events(), "the first entry is asked first")
	s.addPod("p", "a", fails)
	s.pass(time.Second)
	assert.Equal(t, []string{
		"Warning EngineFailed entry a: no memory; it is tried again at 2023-11-14T22:13:51Z",
		"Normal EntryAsked entry b: it is asked for replicas (1): the demand is 1, and what is ready carries 0",
	}, s.events())
	s.pass(time.Second)
	assert.Empty(t, s.events(), "they are told once")

	require.NoError(t, s.api.Delete(t.Context(), s.pod("p")))
	s.addPod("q", "b", serves)
	s.pass(time.Minute)
	assert.Equal(t, []string{"Normal EntryAsked entry a: it is asked for replicas (1): entry b serves, which comes after it"}, s.events())
}

func TestWrongInputOfAnEntryIsAnEvent(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m'}, specs: [{name: a, resourceProfile: none}, {name: b, resourceProfile: gpu}]}`)
	s.pass(0)
	told := s.events()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning InvalidInput entry a: there is no ResourceProfile none")
	assert.Contains(t, told[0], "; it is tried again after an edit")
	s.change(func(m *v1alpha1.Model) { m.Labels = map[string]string{"of": "mine"} })
	s.pass(time.Second)
	assert.Empty(t, s.events())
}
