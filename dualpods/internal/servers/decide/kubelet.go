package decide

import "time"

// Bounds of the pause before a kubelet is asked again.
const (
	FirstKubeletPause   = 50 * time.Millisecond
	AheadKubeletPause   = 10 * time.Millisecond // before the requester program runs
	LongestKubeletPause = 5 * time.Second
)

// GPUs returns the GPUs that the requester has: as its program says, or the kubelet before that
// runs.
func (o *Observation) GPUs() []string {
	switch {
	case o.SPI != nil:
		return o.SPI.GPUs
	case o.Ahead && o.Kubelet != nil:
		return o.Kubelet.GPUs
	}
	return nil
}

// kubeletHasNotAnswered reports whether the kubelet is to be asked which GPUs a requester has,
// and has not said: before it is bound, and once more when its program runs if it was bound
// before.
func (o *Observation) kubeletHasNotAnswered() bool {
	if o.Kubelet == nil || o.Ahead {
		return false
	}
	told := len(o.Kubelet.GPUs) > 0 && (!o.Kubelet.Early || !o.Requester.Running)
	return !told && (o.Record == nil || o.Record.Ahead && !o.ForwardsTraffic())
}

// untilToldGPUs returns when the kubelet is asked next.
func (o *Observation) untilToldGPUs() time.Duration {
	if !o.Requester.Running {
		return max(o.Kubelet.Again.Sub(o.Now), AheadKubeletPause)
	}
	return max(o.Kubelet.Again.Sub(o.Now), FirstKubeletPause)
}
