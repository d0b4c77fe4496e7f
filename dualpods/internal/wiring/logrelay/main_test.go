package logrelay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/requesters/requester"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is the log of an instance, as a launcher gives it.
type engine struct {
	mu      sync.Mutex
	text    []byte
	begin   int64 // the launcher has dropped what is before
	over    bool
	changed chan struct{} // closed with the next change
	gone    bool          // the instance was removed
}

func newEngine(text string) *engine {
	return &engine{text: []byte(text), changed: make(chan struct{})}
}

func (e *engine) change(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) says(text string) { e.change(func() { e.text = append(e.text, text...) }) }

// ends has nobody write to the log any more.
func (e *engine) ends() { e.change(func() { e.over = true }) }

func (e *engine) now() (text []byte, over bool, changed chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		err = launcher.NotFound("a")
	}
	return e.text, e.over, e.changed, err
}

func (e *engine) Log(context.Context, string, int64, int64) (client.LogPart, error) {
	text, _, _, err := e.now()
	if err == nil && e.begin > 0 {
		err = &launcher.Error{Code: launcherapi.CodeRange}
	}
	return client.LogPart{Total: int64(len(text))}, err
}

func (e *engine) CopyLog(_ context.Context, _ string, from int64, w io.Writer) error {
	text, _, _, err := e.now()
	if err == nil && from < e.begin {
		err = w.(client.DropNoter).Dropped(from, e.begin)
		from = e.begin
	}
	if err == nil && from < int64(len(text)) {
		_, err = w.Write(text[from:])
	}
	return err
}

func (e *engine) FollowLog(ctx context.Context, _ string, from int64, w io.Writer) error {
	for {
		text, over, changed, err := e.now()
		if err != nil {
			return err
		}
		if from < int64(len(text)) {
			n, err := w.Write(text[from:])
			from += int64(n)
			if err != nil {
				return err
			}
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// program is a real requester program.
type program struct {
	*requester.Requester
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func newProgram(t *testing.T) *program {
	t.Helper()
	p := &program{}
	var err error
	p.Requester, err = requester.New(requester.Options{Host: "127.0.0.1", AcceleratorsFrom: "env", Log: p, Getenv: func(string) string { return "" }})
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		end()
		require.NoError(t, <-ended)
		require.NoError(t, p.Close())
	})
	return p
}

// rig is a relay between one launcher and requesters.
type rig struct {
	*Relay
	t    *testing.T
	spi  *spi.Client
	kill func()
}

func newRig(t *testing.T, e *engine, change ...func(*Options)) *rig {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	r := &rig{t: t, spi: spi.New(nil)}
	opts := Options{Launcher: func(string) Launcher { return e }, Requesters: r.spi, Log: logr.Discard()}
	for _, c := range change {
		c(&opts)
	}
	r.Relay = New(ctx, opts)
	r.kill = sync.OnceFunc(func() {
		end()
		r.Close()
		r.spi.Close()
	})
	t.Cleanup(r.kill)
	return r
}

// seen is a sight of a requester whose instance is in that state.
func (r *rig) seen(p *program, state launcher.State, from int64) binding.Sight {
	r.t.Helper()
	address := p.SPIAddr().String()
	seat, err := r.spi.Proxy(r.t.Context(), address)
	require.NoError(r.t, err)
	uid := types.UID("uid-" + address)
	o := decide.Observation{
		Common:   decide.Common{Requester: decide.Requester{UID: uid, Exists: true, AdminAddress: address}, SPI: &decide.SPI{Proxy: seat}},
		Record:   &podmeta.Binding{Instance: "a", RequesterUID: uid, Attempt: 1, LogFrom: from},
		Launcher: &decide.Launcher{UID: "launcher", Connected: true},
		Instance: &launcherapi.Instance{InstanceID: "a", LogName: "a.1.log", State: string(state)},
	}
	return binding.Sight{Observation: o}
}

func (r *rig) printed(p *program, want string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return p.printed() == want }, patience.Wait(), time.Millisecond, "%s", printing{p, want})
}

type printing struct {
	p    *program
	want string
}

func (p printing) String() string { return fmt.Sprintf("printed %q, not %q", p.p.printed(), p.want) }
