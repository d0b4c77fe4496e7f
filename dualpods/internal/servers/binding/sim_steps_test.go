package binding

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// stepCounter is a log that notices when a pass takes too many steps.
type stepCounter struct {
	logr.LogSink // nil
	inc          *incarnation
}

func (c *stepCounter) Init(logr.RuntimeInfo)          {}
func (c *stepCounter) Enabled(level int) bool         { return level == 0 }
func (c *stepCounter) Error(error, string, ...any)    {}
func (c *stepCounter) WithName(string) logr.LogSink   { return c }
func (c *stepCounter) WithValues(...any) logr.LogSink { return c }
func (c *stepCounter) Info(_ int, msg string, kv ...any) {
	c.inc.s.locked(func() { c.inc.step(msg, kv) })
}

// step counts a step for a requester in a pass.
func (inc *incarnation) step(msg string, kv []any) {
	if msg != "step" || len(kv) < 10 || kv[2] != "requester" || inc.dead {
		return
	}
	inc.s.step(inc, kv[1].(string), types.UID(kv[5].(string)), decide.Action(kv[9].(string)))
	key := kv[1].(string) + " " + kv[5].(string)
	inc.steps[key]++
	if inc.steps[key] == most {
		inc.s.violated("a pass over %s would never end: the row %q again and again", kv[3], kv[7])
	}
}
