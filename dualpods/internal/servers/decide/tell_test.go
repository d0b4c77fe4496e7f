package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestEverythingThatIsToldHasAReason(t *testing.T) {
	for name, e := range examples {
		if step := Decide(e.o); step.Do == Tell || step.Do == DeleteRequester {
			assert.NotEmpty(t, step.Reason, name)
		}
	}
}

func TestWhatIsUnderWayIsToldOnceAndWhatSomebodyHasToDoEachTimeItIsSomethingElse(t *testing.T) {
	starting := Step{Reason: LauncherStarting, Why: "its image is pulled"}
	wrong := Step{Reason: InvalidInput, Why: "another mistake", Warn: true}
	assert.True(t, IsNews(podmeta.Status{}, starting))
	assert.False(t, IsNews(podmeta.Status{Reason: string(LauncherStarting), Message: "it has no node yet"}, starting))
	assert.True(t, IsNews(podmeta.Status{Reason: string(LauncherMissing)}, starting))
	assert.True(t, IsNews(podmeta.Status{Reason: string(InvalidInput), Message: "a mistake"}, wrong))
}
