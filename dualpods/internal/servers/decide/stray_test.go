package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestEveryStrayIsDecidedByItsRow(t *testing.T) {
	ours := func(state, swap string) Stray {
		return Stray{Instance: launcherapi.Instance{State: state, SwapID: swap, Annotations: map[string]string{podmeta.AnnotationMadeFor: "ns/req"}}}
	}
	but := func(s Stray, change func(*Stray)) Stray { change(&s); return s }
	never := func(s *Stray) { s.NeverSleeps = true }
	carried := func(s *Stray) { s.Carried = true }
	unreadable := func(s *Stray) { s.Unreadable = true }
	surplus := func(s *Stray) { s.Surplus = "vllm" }
	seen := map[string]Action{}
	for name, e := range map[string]struct {
		row string
		do  Action
		s   Stray
	}{
		"awake":                                     {"stray, awake", Sleep, ours("awake", "")},
		"awake, in a swap":                          {"stray, claimed", Nothing, ours("awake", "s")},
		"awake, somebody's own":                     {"stray, made by hand", Nothing, Stray{Instance: launcherapi.Instance{State: "awake"}}},
		"awake, somebody's own, told to sleep":      {"stray, made by hand", Nothing, but(Stray{Instance: launcherapi.Instance{State: "awake"}}, never)},
		"awake, does not sleep":                     {"stray, never sleeps", DeleteInstance, but(ours("awake", ""), never)},
		"awake, a program carries traffic to it":    {"stray, carried", Nothing, but(ours("awake", ""), carried)},
		"awake, its record cannot be read":          {"stray, may serve", Nothing, but(ours("awake", ""), unreadable)},
		"starting":                                  {"stray, starting or ended", DeleteInstance, ours("starting", "")},
		"starting, in a swap":                       {"stray, starting or ended", DeleteInstance, ours("starting", "s")},
		"failed":                                    {"stray, starting or ended", DeleteInstance, ours("failed", "")},
		"stopped":                                   {"stray, starting or ended", DeleteInstance, ours("stopped", "")},
		"asleep":                                    {"stray, at rest", Nothing, ours("sleeping", "")},
		"asleep, told to sleep in vain before":      {"stray, at rest", Nothing, but(ours("sleeping", ""), never)},
		"falling asleep":                            {"stray, at rest", Nothing, ours("falling_asleep", "")},
		"asleep, over its budget":                   {"stray, over its budget", DeleteInstance, but(ours("sleeping", ""), surplus)},
		"asleep, over its budget, and still asked":  {"stray, over its budget", DeleteInstance, but(but(ours("sleeping", ""), surplus), carried)},
		"asleep, over its budget, in a swap":        {"stray, claimed", Nothing, but(ours("sleeping", "s"), surplus)},
		"asleep, over its budget, its record wrong": {"stray, may serve", Nothing, but(but(ours("sleeping", ""), surplus), unreadable)},
		"falling asleep, over its budget":           {"stray, at rest", Nothing, but(ours("falling_asleep", ""), surplus)},
	} {
		step := e.s.Step()
		assert.Equal(t, e.row, step.Rule, name)
		assert.Equal(t, e.do, step.Do, name)
		assert.NotEmpty(t, step.Why, name)
		seen[step.Rule] = step.Do
	}
	for _, r := range strays.Rows {
		assert.Equal(t, r.Do, seen[r.Name], r.Name)
	}
}
