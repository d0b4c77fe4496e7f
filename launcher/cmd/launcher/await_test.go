package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEndWithoutAReasonSaysThatSomebodyStoppedIt(t *testing.T) {
	stopped := launcherapi.Instance{InstanceID: "a", State: "stopped"}
	assert.ErrorContains(t, ended(stopped), "a is stopped: somebody stopped it")
	stopped.Reason = "evicted"
	assert.ErrorContains(t, ended(stopped), "a is stopped: evicted")
}
