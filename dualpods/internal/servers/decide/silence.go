package decide

import "time"

// silentForLong reports whether people are to be told that the requester program does not
// answer.
func (c *Common) silentForLong() bool { return c.Now.Sub(c.Requester.Silent) >= Patience }

// untilAsked returns when to ask a requester program again that does not answer, less and less
// often: by the controller's own clock.
func (c *Common) untilAsked() time.Duration {
	return min(max(c.Now.Sub(c.Requester.Silent)/4, 5*time.Millisecond), longestUntilAsked)
}

// untilGPUsAsked returns when to ask a requester program again that cannot tell its GPUs: soon
// after its container has started, less and less often later. The clock of its node may be
// ahead.
func (c *Common) untilGPUsAsked() time.Duration {
	const first = 250 * time.Millisecond
	return min(max(c.Now.Sub(c.Requester.Started)/4, first), longestUntilAsked)
}

const longestUntilAsked = 5 * time.Second

// untilFoundReady returns when to ask a requester program again that is ready and that the kubelet
// has found unready; zero: the kubelet has not. If somebody makes the program unready again before
// the kubelet's next probe, its Pod does not change, and nothing else tells. The clock of the node
// may be ahead.
func (c *Common) untilFoundReady() time.Duration {
	if c.Requester.FoundUnready.IsZero() {
		return 0
	}
	return min(max(c.Now.Sub(c.Requester.FoundUnready)/4, FirstPause), LongestPause)
}
