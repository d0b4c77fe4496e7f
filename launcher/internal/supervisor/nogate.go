package supervisor

import (
	"context"
	"time"
)

// noGate stands for the public port of an adopted instance for which no port
// could be had: nothing passes.
type noGate struct{}

func (noGate) Host() string                       { return "" }
func (noGate) Port() int                          { return 0 }
func (noGate) Open()                              {}
func (noGate) Shut(string)                        {}
func (noGate) Fail(string)                        {}
func (noGate) Drain(context.Context) (int, error) { return 0, nil }
func (noGate) InFlight() int                      { return 0 }
func (noGate) Held() int                          { return 0 }
func (noGate) LastUsed() time.Time                { return time.Time{} }
func (noGate) Close(context.Context) error        { return nil }
