package dualpods

import "time"

// Sooner returns the shorter of two pauses; 0 is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
