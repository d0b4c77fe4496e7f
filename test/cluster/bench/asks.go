package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// ask is a request for a Model at zero whose model sleeps.
type ask struct {
	began, answered time.Time // sent; first byte of the answer
}

// ask asks for a Model, and notes when.
func (s *site) ask(ctx context.Context, door, model string) (a ask, err error) {
	a.began = time.Now()
	err = s.chat(ctx, door, model)
	a.answered = time.Now()
	return a, err
}

// took returns how long each request took to its first byte.
func took(asks []ask) (all figures.Times) {
	for _, a := range asks {
		all = append(all, a.answered.Sub(a.began))
	}
	return all
}

// wakes finds how long the engine took to wake for each request. No two requests are under way at the same time.
func wakes(asks []ask, moments []launcherapi.Instance) (all figures.Times, err error) {
	for _, a := range asks {
		var waking, awake time.Time
		for _, m := range moments {
			if m.StateSince.Before(a.began) || m.StateSince.After(a.answered) {
				continue
			}
			switch launcher.State(m.State) {
			case launcher.Waking:
				waking = m.StateSince
			case launcher.Awake:
				awake = m.StateSince
			default:
			}
		}
		if waking.IsZero() || awake.Before(waking) {
			return nil, fmt.Errorf("the model did not wake for the request at %s", a.began)
		}
		all = append(all, awake.Sub(waking))
	}
	return all, nil
}

// traceAsks tells of each request, in milliseconds since it was sent, which writes and changes of an instance's state
// fell into its time.
func traceAsks(asks []ask, writes []write, moments []launcherapi.Instance) []byte {
	var text bytes.Buffer
	for n, a := range asks {
		var lines []string
		line := func(when time.Time, format string, args ...any) {
			if !when.Before(a.began) && !when.After(a.answered) {
				lines = append(lines, fmt.Sprintf("%8.1f  ", 1000*when.Sub(a.began).Seconds())+fmt.Sprintf(format, args...))
			}
		}
		for i := range writes {
			w := &writes[i]
			line(w.Received, "%s %s%s/%s %s: %d, in %s ms%s", w.Verb, w.ofKind(), w.Object.Name, w.Object.Subresource, w.user(), w.Response.Code, figures.MS(w.Answered.Sub(w.Received)), w.told())
		}
		for _, m := range moments {
			line(m.StateSince, "instance %s is %s", m.InstanceID, m.State)
		}
		line(a.answered, "the client has the first byte")
		slices.Sort(lines) // times have one width
		fmt.Fprintf(&text, "request %d\n  %s\n", n, strings.Join(lines, "\n  "))
	}
	return text.Bytes()
}

// keepAsks keeps the traces of requests beside the profiles, once the audit log has all writes of their time.
func (b *bench) keepAsks(s *site, part string, asks []ask, moments []launcherapi.Instance) error {
	last := asks[len(asks)-1].answered
	var writes []write
	err := s.poll(b.ctx, "the audit log has the writes of all requests", func() (done bool, err error) {
		writes, err = readWrites(s.AuditLog())
		return len(writes) > 0 && writes[len(writes)-1].Received.After(last), err
	})
	if err != nil {
		return err
	}
	return b.keep(part, traceAsks(asks, writes, moments))
}
