package decide

import "hotseat.dev/hotseat/spec/podmeta"

// Words about a requester, for what rows tell.

func (c *Common) nodeName() string     { return c.Node.Name }
func (c *Common) adminAddress() string { return c.Requester.AdminAddress }
func (c *Common) container() string    { return c.Requester.Program }
func (c *Common) problems() string     { return podmeta.Join(c.Problems) }
