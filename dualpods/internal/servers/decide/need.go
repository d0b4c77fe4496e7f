package decide

import "hotseat.dev/hotseat/dualpods"

// Need returns what a launcher has to have for the requester.
func (o *Observation) Need() dualpods.LauncherNeed {
	need := o.Form.Need()
	need.Namespace, need.Node, need.Placed = o.Requester.Namespace, o.Node.Name, o.Requester.Placed
	return need
}
