package process_test

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// measure reports the median and the slowest of what each call gives.
func measure(b *testing.B, call func() time.Duration) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		all = append(all, call())
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)-1].Microseconds()), "max-µs")
}

// untilHello is the time from the call of start until the child writes its first byte.
func untilHello(b *testing.B, start func(output *os.File)) time.Duration {
	b.Helper()
	output, input, err := os.Pipe()
	require.NoError(b, err)
	defer output.Close()
	began := time.Now()
	start(input)
	input.Close()
	_, err = io.ReadFull(output, make([]byte, 1))
	require.NoError(b, err)
	return time.Since(began)
}

func BenchmarkAStartUntilTheChildsFirstByte(b *testing.B) {
	b.Run("bare os/exec", func(b *testing.B) {
		measure(b, func() time.Duration {
			cmd := exec.CommandContext(b.Context(), "/bin/echo", "x")
			defer func() { _ = cmd.Wait() }()
			return untilHello(b, func(output *os.File) {
				cmd.Stdout = output
				require.NoError(b, cmd.Start())
			})
		})
	})
	for _, mode := range modes {
		b.Run(string(mode), func(b *testing.B) {
			h := newHost(b, mode)
			measure(b, func() time.Duration {
				var p *process.Process
				took := untilHello(b, func(output *os.File) {
					c := command("a", "")
					c.Path, c.Args, c.Output = "/bin/echo", []string{"echo", "x"}, output
					var err error
					p, err = h.Start(c)
					require.NoError(b, err)
				})
				require.NoError(b, p.Kill(b.Context()))
				return took
			})
		})
	}
}

func BenchmarkADeathUntilDone(b *testing.B) {
	for _, mode := range modes {
		b.Run(string(mode), func(b *testing.B) {
			h := newHost(b, mode)
			measure(b, func() time.Duration {
				c := command("a", "")
				c.Path, c.Args = "/bin/sleep", []string{"sleep", "300"}
				p, err := h.Start(c)
				require.NoError(b, err)
				began := time.Now()
				require.NoError(b, syscall.Kill(p.ID().PID, syscall.SIGKILL))
				<-p.Done()
				took := time.Since(began)
				require.NoError(b, p.Kill(b.Context()))
				return took
			})
		})
	}
}

func BenchmarkAStubbornStopBeyondItsGrace(b *testing.B) {
	const grace = 20 * time.Millisecond
	for _, mode := range modes {
		b.Run(string(mode), func(b *testing.B) {
			h := newHost(b, mode)
			measure(b, func() time.Duration {
				var p *process.Process
				untilHello(b, func(output *os.File) {
					c := command("a", "")
					c.Path, c.Output = "/bin/sh", output
					c.Args = []string{"sh", "-c", "trap '' TERM; for i in 1 2 3 4; do setsid sleep 300 & done; echo x; wait"}
					var err error
					p, err = h.Start(c)
					require.NoError(b, err)
				})
				began := time.Now()
				require.NoError(b, p.Stop(b.Context(), grace))
				return time.Since(began) - grace
			})
		})
	}
}
