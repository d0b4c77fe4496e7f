package decide

import "hotseat.dev/hotseat/dualpods"

// Need returns what a launcher has to have for the requester.
func (c *Common) Need() dualpods.LauncherNeed {
	need := c.Form.Need()
	need.Namespace, need.Node, need.Placed = c.Requester.Namespace, c.Node.Name, c.Requester.Placed
	return need
}
