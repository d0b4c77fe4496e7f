package allocations

import "slices"

// Claim is which GPUs a requester has, and by whose word.
type Claim struct {
	Given []string // by the kubelet's word; none: it has not said it
	Says  []string // by the word of its program
	// Answers: its program answers.
	Answers bool
	// Bound are the GPUs of its record; nil: it has none.
	Bound []string
}

// IsRival reports whether another living requester has a GPU of this one's, or is bound on it.
// recordCounts says that the other's record counts for this one.
//
// The word of a program counts for nothing against the kubelet's word about another requester.
// Against a requester that is bound, only another record counts.
func (c *Claim) IsRival(other *Claim, recordCounts bool) bool {
	mine, given := c.word()
	if !c.Answers && !given {
		return false
	}
	if c.Bound != nil {
		mine = c.Bound
	}
	theirs, theirsGiven := other.word()
	if given && !theirsGiven || c.Bound != nil {
		theirs = nil
	}
	if recordCounts {
		theirs = slices.Concat(theirs, other.Bound)
	}
	return slices.ContainsFunc(mine, func(gpu string) bool { return slices.Contains(theirs, gpu) })
}

// word returns the GPUs that the kubelet gave to the requester, else those that its program says
// it has.
func (c *Claim) word() (gpus []string, given bool) {
	if len(c.Given) > 0 {
		return c.Given, true
	}
	return c.Says, false
}
