package dualpods

// RankSwap is how far the swap of a rank is: a rank of a server over several launchers waits in its
// swap for the others. It is zero while no swap is under way, as far as is known.
type RankSwap struct {
	ID    string // of the swap on its launcher
	Phase string // the one that began last: see launcherapi
}
