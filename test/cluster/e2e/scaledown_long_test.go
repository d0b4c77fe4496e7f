//go:build cluster && clusterlong

package e2e

import "testing"

func TestRequestersEndedAfterAPreStopHookLoseNoMoreThanPlainPods(t *testing.T) {
	endedByTheKubelet(t, 3)
}
