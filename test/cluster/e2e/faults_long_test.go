//go:build cluster && clusterlong

package e2e

import (
	"testing"
	"time"
)

func TestAMinuteWithoutTheAPIServerHarmsNothing(t *testing.T) { withoutAPI(t, time.Minute) }

func TestAMinuteWithoutALauncherHarmsNothing(t *testing.T) { withoutLauncher(t, time.Minute) }

func TestKubernetesItselfCollectsThePodsOfADeletedNode(t *testing.T) { withoutNode(t, func(*site) {}) }
