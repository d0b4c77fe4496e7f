package conformance

import "testing"

func stepName(x exchange) string { return x.Step }

func TestTheStandInAnswersAsVLLM(t *testing.T) {
	t.Parallel()
	e := standIn.serve(t, nil)
	e.ready()
	compare(t, "conversation", e.converse(conversation()), stepName)
}

func TestTheStandInShowsUsersWhatVLLMShowsThem(t *testing.T) {
	t.Parallel()
	e := standIn.serve(t, userEnv, userArgs...)
	e.ready()
	compare(t, "users", e.converse(userSteps()), stepName)
}

// An engine as users should have it.
var (
	userEnv  = []string{"VLLM_SERVER_DEV_MODE=0"}
	userArgs = []string{"--api-key", "sekret", "--served-model-name", "tiny-a", "other-name"}
)
