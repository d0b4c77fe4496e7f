package placement

import (
	"slices"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// preferClaimReaders prefers nodes whose launcher reads a claim that has the model. When more than
// maxPreferred nodes qualify, it prefers none of them.
func (d *decision) preferClaimReaders(out *Decision, r *Requester, reachable func(node string) bool) {
	claims := d.claimsOf(r)
	if len(claims) == 0 {
		return
	}
	var claim string
	var nodes []Preference
	for _, l := range d.serving(r) {
		if len(nodes) > maxPreferred {
			break
		}
		n := slices.IndexFunc(claims, func(claim string) bool { return slices.Contains(l.Claims, claim) })
		if n >= 0 && reachable(l.Node) {
			claim, nodes = claims[n], append(nodes, Preference{l.Node, weightClaim})
		}
	}
	switch {
	case len(nodes) == 0:
		return
	case len(nodes) > maxPreferred:
		out.Why = "which the launchers of many nodes read"
	default:
		out.Prefer, out.Why = nodes, "which the launcher of node "+nodes[0].Node+" reads"
	}
	out.Row, out.Why = rowOnClaim, "its model is on PersistentVolumeClaim "+claim+", "+out.Why
}

// claimsOf returns the claims of a requester's namespace that have its model.
func (d *decision) claimsOf(r *Requester) (names []string) {
	if r.Form.ModelCache == launcherapi.ModelCacheOff {
		return nil
	}
	wanted := modelref.FromArgs(r.Form.Args)
	for _, c := range d.Claims {
		if c.Namespace == r.Namespace && wanted.In(c.Model) {
			names = append(names, c.Name)
		}
	}
	return names
}
