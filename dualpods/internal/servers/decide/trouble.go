package decide

import "time"

// Trouble is that of a call to a requester program or a launcher that is made again and again:
// each time it failed, or was answered and changed nothing.
type Trouble struct {
	Count int
	Why   string
	Until time.Time // when it is made again
}

// TellTrouble is from which time on a call in trouble is told.
const TellTrouble = 3

// inVain reports whether a call was made in vain, and is not to be made again yet.
func (c *Common) inVain(do Action) bool { return c.Now.Before(c.Troubles[do].Until) }
