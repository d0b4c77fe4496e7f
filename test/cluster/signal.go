package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Process tells one process of a node from the others.
type Process struct {
	CommandLine string // extended regular expression that the words of its command line, with blanks between them, match
	PID         int    // its number in its container; 0: any
	Variable    string // the beginning of NAME=VALUE in its environment; empty: any
}

// Signal sends the one process of a node a signal, named as kill names it, and
// says when. It is an error when there is none, or more than one.
func (c *Cluster) Signal(ctx context.Context, node int, signal string, to Process) (at time.Time, err error) {
	const script = `for d in /proc/[0-9]*; do
		tr '\0' ' ' <$d/cmdline 2>/dev/null | grep -qE -- "$1" && grep -qE "^NSpid:.*[[:space:]]$2\$" $d/status &&
			tr '\0' '\n' <$d/environ | grep -qE -- "^$3" && echo ${d#/proc/}
	done
	true`
	pid := "[0-9]+"
	if to.PID > 0 {
		pid = strconv.Itoa(to.PID)
	}
	cmd, err := c.InNode(ctx, node, "sh", "-c", script, "sh", to.CommandLine, pid, to.Variable)
	if err != nil {
		return time.Time{}, err
	}
	out, err := cmd.Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot look at the processes of %s: %w", NodeName(node), err)
	}
	found := strings.Fields(string(out))
	if len(found) != 1 {
		return time.Time{}, fmt.Errorf("cannot send SIG%s to %+v: %d processes of %s are so, and not one", signal, to, len(found), NodeName(node))
	}
	if cmd, err = c.InNode(ctx, node, "sh", "-c", `date +%s%N && kill -$1 $2`, "sh", signal, found[0]); err != nil {
		return time.Time{}, err
	}
	if out, err = cmd.Output(); err != nil {
		return time.Time{}, fmt.Errorf("cannot send SIG%s to %+v: %w", signal, to, err)
	}
	nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return time.Time{}, errors.New("cannot tell when: date gives no nanoseconds")
	}
	return time.Unix(0, nanoseconds), nil
}
