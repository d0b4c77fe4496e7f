package dualpods

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// IsStale reports whether all that went wrong with a write is that the cache was behind.
func IsStale(err error) bool {
	return err != nil && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
}
