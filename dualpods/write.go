package dualpods

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// AnswerLost reports whether a write may have been made although it failed: the API
// server has not refused it.
func AnswerLost(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return !ok || status.ErrStatus.Code >= 500
}

// ErrNotLeading is why a process that was frozen writes nothing.
var ErrNotLeading = errors.New("another replica may lead by now")
