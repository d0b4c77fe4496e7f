package decide

import (
	"time"

	"hotseat.dev/hotseat/launcher"
)

// mayForwardTraffic reports whether the requester program does not say whether it carries
// traffic to an instance that is to sleep: that of its record, or one whose record cannot be
// read.
func (o *Observation) mayForwardTraffic() bool {
	if !o.Requester.Running || o.Requester.Finished || o.SPI != nil {
		return false
	}
	return o.RecordUnwanted() && o.Instance != nil && !o.InstanceIn(launcher.Starting) || o.IsLeaving() && o.Unread != ""
}

// silentForLong reports whether people are to be told that the requester program does not
// answer.
func (o *Observation) silentForLong() bool { return o.Now.Sub(o.Requester.Silent) >= Patience }

// untilAsked returns when to ask a requester program again that does not answer, less and less
// often: by the controller's own clock.
func (o *Observation) untilAsked() time.Duration {
	return min(max(o.Now.Sub(o.Requester.Silent)/4, 5*time.Millisecond), longestUntilAsked)
}

// untilGPUsAsked returns when to ask a requester program again that cannot tell its GPUs: soon
// after its container has started, less and less often later. The clock of its node may be
// ahead.
func (o *Observation) untilGPUsAsked() time.Duration {
	const first = 250 * time.Millisecond
	return min(max(o.Now.Sub(o.Requester.Started)/4, first), longestUntilAsked)
}

const longestUntilAsked = 5 * time.Second

// untilFoundReady returns when to ask a requester program again that is ready and that the kubelet
// has found unready; zero: the kubelet has not. If somebody makes the program unready again before
// the kubelet's next probe, its Pod does not change, and nothing else tells. The clock of the node
// may be ahead.
func (o *Observation) untilFoundReady() time.Duration {
	if o.Requester.FoundUnready.IsZero() {
		return 0
	}
	return min(max(o.Now.Sub(o.Requester.FoundUnready)/4, FirstPause), LongestPause)
}
