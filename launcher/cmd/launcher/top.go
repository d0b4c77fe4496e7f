package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/client"
)

// frameTime is the shortest time from one frame to the next, unless the size of the terminal
// has changed.
const frameTime = 250 * time.Millisecond

func (c *cli) topCommand() *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch GPUs, models and swaps live",
		Long: `Watch live which models are awake and asleep on each GPU, how many requests each model
has, and the phases of the swaps that run or have just ended. Ctrl-C ends it.

With --once, or if standard output is no terminal, it prints this once. ps, gpus, swaps
and front-door print the same as JSON with -o json.`,
		Example: `  launcher top
  launcher top --once`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&once, "once", false, "print it once, and end")
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, _ []string) error {
		c.asksOnly = true
		eye := newLooker(cl, cmp.Or(c.server, os.Getenv(envServer), defaultServer))
		first, err := eye.look(ctx)
		if err != nil {
			return err
		}
		terminal, ok := c.out.(*os.File)
		if ok = ok && isTerminal(terminal); ok && !once {
			return c.live(ctx, eye, first, terminal)
		}
		width := math.MaxInt
		if ok {
			width, _ = sizeOf(terminal)
		}
		_, err = io.WriteString(c.out, render(first, time.Now(), width))
		return err
	})
}

// live draws what the launcher does until ctx ends.
func (c *cli) live(ctx context.Context, eye *looker, latest picture, terminal *os.File) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	looks, ended := make(chan picture), make(chan struct{})
	go func() { defer close(ended); eye.run(ctx, latest, looks) }()
	defer func() { cancel(); <-ended }()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTSTP)
	defer signal.Stop(signals)
	frames := time.NewTicker(frameTime)
	defer frames.Stop()

	screen := screen{out: terminal, keys: c.in}
	defer func() { err = errors.Join(err, screen.close()) }()
	if err := screen.open(); err != nil {
		return err
	}
	for {
		if err := screen.draw(func(width int) string { return render(latest, time.Now(), width) }); err != nil {
			return err
		}
		if latest, err = nextFrame(ctx, &screen, latest, looks, signals, frames.C); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// nextFrame waits until a frame is due, and returns the latest look at the launcher.
func nextFrame(ctx context.Context, s *screen, latest picture, looks <-chan picture, signals <-chan os.Signal, due <-chan time.Time) (picture, error) {
	for {
		select {
		case <-ctx.Done():
			return latest, nil
		case latest = <-looks:
		case <-due:
			return latest, nil
		case sig := <-signals:
			if sig == unix.SIGTSTP {
				return latest, s.suspend()
			}
			return latest, nil
		}
	}
}
