package binding

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is how many bytes of a condition's message are used.
const maxMessage = 4096

// Setter sets a condition.
type Setter func(kind string, is bool, reason, message string)

// SetterOf gives what sets the conditions of an object of that generation.
func SetterOf(conditions *[]metav1.Condition, generation int64) Setter {
	return func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: Shortened(message, maxMessage), ObservedGeneration: generation,
		})
	}
}
