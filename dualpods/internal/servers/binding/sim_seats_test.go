package binding

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// reseat makes a seat of a requester, and gives it another model or none, by one write, as the controller of SeatPools
// does.
func (s *sim) reseat(e simEvent) {
	name, ok := pick(s.targets(), e.arg)
	if !ok || s.api.pods[name].DeletionTimestamp != nil {
		return
	}
	s.api.changePod(name, func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[podmeta.LabelSeat] = "pool"
		for _, key := range append([]string{podmeta.AnnotationSeat}, podmeta.EngineAnnotations...) {
			delete(p.Annotations, key)
		}
		status := podmeta.Status{State: decide.StateWaiting, Reason: string(decide.NoModel), Message: decide.SeatHasNoModel, Since: time.Now().UTC().Truncate(time.Second)}
		if e.arg/8%4 > 0 {
			model := modelName(int(e.arg / 64 % simModels))
			of := podmeta.Assignment{Model: model, Entry: "seats", Config: model, Hash: "h", Since: time.Now().UTC()}
			p.Annotations[podmeta.AnnotationSeat], p.Annotations[podmeta.AnnotationInferenceServerConfig] = of.Encode(), model
			status.Reason, status.Message, status.Seat = string(decide.NotServing), "it was given the model of "+model, of.ID()
		}
		p.Annotations[podmeta.AnnotationStatus] = status.Encode()
	})
}

// checkSeat looks at a seat after a long time in which nothing has happened: it has what it was given last.
func (s *sim) checkSeat(pod *corev1.Pod, at int, blind bool) {
	if !podmeta.IsSeat(pod) || blind || at < 0 {
		return
	}
	if r, of := s.records()[at], podmeta.ReadAssignment(pod); r.ChangedBy != of.ID() && !s.unreadable(r) {
		s.violated("at rest: seat %s was given %q, and has the record of %q", pod.Name, of.ID(), r.ChangedBy)
	}
}

// withSeats returns a script in which requesters become seats, and change their models.
func withSeats(seed uint64) []simEvent {
	s := &sim{draws: schedules.Draws{Seed: seed}}
	script := drawScript(seed)
	last := script[len(script)-1].at
	for range 1 + s.draw("reseats", 8) {
		script = append(script, simEvent{at: s.between("reseat at", time.Millisecond, last+time.Second), what: "reseat", arg: s.draw("reseat", 1<<20)})
	}
	return inOrder(script)
}

func TestSeatsChangeTheirModelsInEverySchedule(t *testing.T) {
	r := schedules.FromEnvironment(t, simSeated)
	schedules.Play(t, r, func(t *testing.T, seed uint64) []string {
		return simulate(t, seed, withSeats(seed), decide.Tables, false).wrong
	}, func(t *testing.T, seed uint64, wrong []string) string {
		return story(t, seed, withSeats(seed), wrong, "")
	})
}

func TestSeatThatIsServedChangesItsModel(t *testing.T) {
	script := []simEvent{{at: time.Millisecond, what: "create", arg: 384}, {at: 20 * time.Second, what: "reseat", arg: 64 + 8}, {at: 40 * time.Second, what: "reseat", arg: 0}, {at: 60 * time.Second, what: "reseat", arg: 128 + 8}}
	out := simulate(t, 1, script, decide.Tables, true)
	assert.Empty(t, out.wrong)
	lines := strings.Join(out.lines, "\n")
	for _, row := range []string{"unbinding, carries", "resting, awake", "resting, asleep or gone", "no record"} {
		assert.Contains(t, lines, row)
	}
}
