package decide

import (
	"fmt"
	"time"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Words of an observation, for what rules tell.

func instanceID(o *Observation) string   { return o.Record.Instance }
func launcherName(o *Observation) string { return o.Launcher.Name }
func launcherWhy(o *Observation) string  { return o.Launcher.Why }
func nodeName(o *Observation) string     { return o.Node.Name }
func adminAddress(o *Observation) string { return o.Requester.AdminAddress }
func container(o *Observation) string    { return o.Requester.Program }
func problems(o *Observation) string     { return podmeta.Join(o.Problems) }
func kubeletWhy(o *Observation) string   { return o.Kubelet.Why }
func retryAt(o *Observation) string      { return o.Record.RetryAt.UTC().Format(time.RFC3339) }

func instanceState(o *Observation) string {
	if o.Instance == nil {
		return "not there"
	}
	return o.Instance.State
}

// fate says how an instance came to serve no more.
func fate(o *Observation) string {
	switch {
	case o.Launcher.Ended:
		return "ended with the container of its launcher " + o.Launcher.Name
	case o.Instance == nil:
		return "was deleted"
	case o.Instance.Reason != "":
		return fmt.Sprintf("is %s (%s)", o.Instance.State, o.Instance.Reason)
	}
	return "is " + o.Instance.State
}
