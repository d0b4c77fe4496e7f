package decide

import "time"

// GPUs returns the GPUs that the requester has: as its program says, or the kubelet before that
// runs.
func (c *Common) GPUs() []string {
	switch {
	case c.SPI != nil:
		return c.SPI.GPUs
	case c.Ahead && c.Kubelet != nil:
		return c.Kubelet.GPUs
	}
	return nil
}

// kubeletSilent reports whether the kubelet was asked which GPUs a requester has, and has not said.
func (c *Common) kubeletSilent() bool {
	return c.Kubelet != nil && !c.Ahead && !c.Kubelet.IsKnown(c.Requester.Running)
}

// untilToldGPUs returns when the kubelet is asked next.
func (c *Common) untilToldGPUs() time.Duration {
	return c.Kubelet.Until(c.Now, c.Requester.Running)
}

func (c *Common) kubeletWhy() string { return c.Kubelet.Why }
