package podmeta

import "strings"

// Kind says what sort of problem there is.
type Kind string

// The kinds of problems.
const (
	// Invalid is input that means nothing, or two things.
	Invalid Kind = "invalid"
	// LauncherCannotGive is input that is right for a Pod of its own, and that
	// an instance in a launcher Pod cannot have.
	LauncherCannotGive Kind = "launcher cannot give"
	// Missing is the name of an object that does not exist, and that somebody may create at
	// any moment.
	Missing Kind = "missing"
)

// Problem is one thing that is wrong with what somebody wrote.
type Problem struct {
	Kind Kind
	// Field is where it stands: a path such as
	// metadata.annotations[dual-pod.llm-d.ai/admin-port], or, in a server patch,
	// spec.containers[inference-server].env[HF_TOKEN].valueFrom.
	Field string
	// Message says what is wrong and what would be right.
	Message string
}

// String gives the field and the message, for events and status.
func (p Problem) String() string { return p.Field + ": " + p.Message }

// Join gives problems behind one another.
func Join(problems []Problem) string {
	lines := make([]string, len(problems))
	for n, p := range problems {
		lines[n] = p.String()
	}
	return strings.Join(lines, "; ")
}

func invalid(field, message string) Problem {
	return Problem{Kind: Invalid, Field: field, Message: message}
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }
