package ownlog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/ownlog"
)

// output is an output that can be stopped, or whose reader can go away.
type output struct {
	mu      sync.Mutex
	text    strings.Builder
	err     error
	stopped chan struct{} // nil: it takes lines; closed when it takes them again
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	stopped := o.stopped
	o.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) stop() (goOn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	stopped := make(chan struct{})
	o.stopped = stopped
	return func() {
		o.mu.Lock()
		o.stopped = nil
		o.mu.Unlock()
		close(stopped)
	}
}

func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func dropped(lines int) []byte { return fmt.Appendf(nil, "dropped %d\n", lines) }

// write writes a line and returns how long that took.
func write(t *testing.T, w *ownlog.Writer, text string) time.Duration {
	t.Helper()
	began := time.Now()
	n, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.Equal(t, len(text), n)
	return time.Since(began)
}

func TestALineIsOutWhenWriteReturns(t *testing.T) {
	var out output
	w := ownlog.New(&out, dropped)
	defer w.Close()
	var want string
	for i := range 100 {
		text := fmt.Sprintf("line %d\n", i)
		want += text
		write(t, w, text)
		require.Equal(t, want, out.String())
	}
}

func TestNobodyWaitsForAStoppedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		w := ownlog.New(&out, dropped)
		goOn := out.stop()
		assert.Equal(t, 100*time.Millisecond, write(t, w, "one\n"))
		for range 1000 {
			require.Zero(t, write(t, w, "more\n"), "only the first line waits")
		}
		goOn()
		synctest.Wait()
		assert.Equal(t, "one\n"+strings.Repeat("more\n", 1000), out.String())

		goOn = out.stop()
		assert.Equal(t, 100*time.Millisecond, write(t, w, "again\n"), "it had caught up")
		goOn()
		w.Close()
	})
}

func TestLinesThatDoNotFitAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		w := ownlog.New(&out, dropped)
		goOn := out.stop()
		kib := strings.Repeat("x", 1023) + "\n"
		for range 1024 + 7 {
			write(t, w, kib)
		}
		goOn()
		synctest.Wait()
		assert.Equal(t, strings.Repeat(kib, 1024)+"dropped 7\n", out.String())

		write(t, w, "after\n")
		write(t, w, strings.Repeat("x", 1<<20+1))
		w.Close()
		assert.True(t, strings.HasSuffix(out.String(), "dropped 7\nafter\ndropped 1\n"))
	})
}

func TestAnOutputWithoutReaderLosesItsLinesAlone(t *testing.T) {
	var out output
	w := ownlog.New(&out, dropped)
	defer w.Close()
	out.fail(errors.New("broken pipe"))
	write(t, w, "lost\n")
	out.fail(nil)
	write(t, w, "read\n")
	assert.Equal(t, "read\n", out.String())
}

func TestCloseWaitsForLinesAndNotForAStoppedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, stuck output
		w := ownlog.New(&slow, dropped)
		goOn := slow.stop()
		write(t, w, "line\n")
		time.AfterFunc(time.Second/2, goOn)
		w.Close()
		assert.Equal(t, "line\n", slow.String())
		assert.Zero(t, write(t, w, "too late\n"))

		w = ownlog.New(&stuck, dropped)
		goOn = stuck.stop()
		write(t, w, "line\n")
		began := time.Now()
		w.Close()
		assert.Equal(t, time.Second, time.Since(began))
		goOn()
	})
}
