package scheduler

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func BenchmarkEnterLeave(b *testing.B) {
	s := New(Options{Fleet: newFleet(1, model("x", awake("a"))), MaxWaiting: 10, Logger: slog.New(slog.DiscardHandler)})
	s.Run()
	defer s.Close()
	first, err := s.Enter("x")
	require.NoError(b, err)
	<-first.Ready()
	first.Leave()
	b.ReportAllocs()
	for b.Loop() {
		ticket, _ := s.Enter("x")
		ticket.Leave()
	}
}

// BenchmarkDecide decides about 20 models on 8 GPUs, of which half are awake and all are wanted.
func BenchmarkDecide(b *testing.B) {
	w := world(8)
	for n := range 20 {
		gpu := w.GPUs[n%8].UUID
		m := model(string(rune('A'+n)), waits(time.Duration(n)*time.Second))
		switch {
		case n < 8:
			m = model(m.Name, awake(gpu), since(time.Second), answers)
		case n < 12:
			m = model(m.Name, asleep(gpu), waits(time.Minute))
		case n < 16:
			m.Count = 2
		}
		w.Models = append(w.Models, m)
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(w)
	}
}
