package decide

import "time"

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
	return !o.Kubelet.IsKnown(o.Requester.Running) && (o.Record == nil || o.Record.Ahead && !o.ForwardsTraffic())
}

// untilToldGPUs returns when the kubelet is asked next.
func (o *Observation) untilToldGPUs() time.Duration {
	return o.Kubelet.Until(o.Now, o.Requester.Running)
}
