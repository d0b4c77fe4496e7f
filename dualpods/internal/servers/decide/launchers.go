package decide

import "hotseat.dev/hotseat/dualpods"

func (o *Observation) Need() dualpods.LauncherNeed {
	need := o.Form.Need()
	need.Namespace, need.Node, need.Placed = o.Requester.Namespace, o.Node.Name, o.Requester.Placed
	return need
}
