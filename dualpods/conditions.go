package dualpods

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is how many bytes of a condition's message are written.
const maxMessage = 4096

// ConditionSetter sets one condition of an object.
type ConditionSetter func(kind string, is bool, reason, message string)

// NewConditionSetter returns a setter for the conditions of an object of that generation.
func NewConditionSetter(conditions *[]metav1.Condition, generation int64) ConditionSetter {
	return func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: Truncate(message, maxMessage), ObservedGeneration: generation,
		})
	}
}

// Truncate returns the text. If the text has more than limit bytes, Truncate returns
// its beginning and an ellipsis of three dots, limit bytes at most.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}
