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

func TestTheStandInTreatsWhatIsInFlightAsVLLM(t *testing.T) {
	t.Parallel()
	e := standIn.serve(t, endlessEnv, endlessArgs...)
	e.ready()
	compare(t, "in-flight", e.converse(inFlightSteps()), stepName)
}

// An engine whose context is long enough for answers that last for minutes.
var (
	endlessEnv  = []string{"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"}
	endlessArgs = []string{"--max-model-len", "65536", "--hf-overrides", `{"max_position_embeddings":65536}`}
)

// An engine as users should have it.
var (
	userEnv  = []string{"VLLM_SERVER_DEV_MODE=0"}
	userArgs = []string{"--api-key", "sekret", "--served-model-name", "tiny-a", "other-name"}
)
