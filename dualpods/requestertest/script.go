package requestertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Client asks requester programs as a controller does, as [spi.Client] does.
type Client interface {
	Accelerators(ctx context.Context, address string) ([]string, error)
	Proxy(ctx context.Context, address string) (requesterapi.Proxy, error)
	Bind(ctx context.Context, address string, config requesterapi.ProxyConfig) (requesterapi.Proxy, error)
	Unbind(ctx context.Context, address, binding string, drain time.Duration) (requesterapi.Unbound, error)
	BecomeReady(ctx context.Context, address, binding string) error
	BecomeUnready(ctx context.Context, address, binding string) error
}

// Script makes calls of a requester that nobody is bound to, as a controller makes
// them, and tells in words what came of each: all requesters with the same GPUs
// give the same. It is bound to a server at 127.0.0.1 that nobody need listen at,
// on a serving port that is free.
func Script(ctx context.Context, c Client, address string, servingPort uint16) (answers []string) {
	told := func(what, result string, err error) {
		if refused, ok := errors.AsType[*spi.RefusedError](err); ok {
			result = fmt.Sprintf("refused: %d %s", refused.Problem.Status, refused.Problem.Code)
		} else if err != nil {
			result = "no answer: " + err.Error()
		}
		answers = append(answers, what+": "+result)
	}
	shown := func(p requesterapi.Proxy) string {
		return fmt.Sprintf("%s %+v ready=%t terminating=%t connections=%d", p.State, p.ProxyConfig, p.Ready, p.Terminating, p.Connections)
	}
	state := func(when string) {
		p, err := c.Proxy(ctx, address)
		told("the proxy "+when, shown(p), err)
	}
	config := func(binding string, port uint16) requesterapi.ProxyConfig {
		return requesterapi.ProxyConfig{Binding: binding, ServingPort: servingPort, Address: "127.0.0.1", Port: port}
	}
	bind := func(what string, config requesterapi.ProxyConfig) {
		p, err := c.Bind(ctx, address, config)
		told(what, shown(p), err)
		state("after that")
	}
	unbind := func(what, binding string) {
		u, err := c.Unbind(ctx, address, binding, time.Second)
		told(what, fmt.Sprintf("%+v", u), err)
		state("after that")
	}
	do := func(what string, call func(context.Context, string, string) error, binding string) {
		told(what, "done", call(ctx, address, binding))
		state("after that")
	}
	gpus, err := c.Accelerators(ctx, address)
	told("the GPUs", fmt.Sprint(slices.Sorted(slices.Values(gpus))), err)
	state("of nobody")
	do("become ready for nobody", c.BecomeReady, "one")
	do("become unready for nobody", c.BecomeUnready, "one")
	unbind("unbind nobody", "one")
	bind("bind one", config("one", 1))
	bind("bind one again", config("one", 1))
	bind("bind one to another target", config("one", 2))
	bind("bind two beside it", config("two", 1))
	do("become ready for two", c.BecomeReady, "two")
	do("become ready for one", c.BecomeReady, "one")
	do("become ready again", c.BecomeReady, "one")
	bind("bind one, which is ready", config("one", 1))
	do("become unready for two", c.BecomeUnready, "two")
	unbind("unbind two", "two")
	do("become unready for one", c.BecomeUnready, "one")
	do("become ready once more", c.BecomeReady, "one")
	unbind("unbind one, which is ready", "one")
	unbind("unbind it again", "one")
	bind("bind two", config("two", 2))
	unbind("unbind it", "two")
	return answers
}
