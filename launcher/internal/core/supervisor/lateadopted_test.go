package supervisor

import (
	"context"
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAdoptionRemovesItsReason(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		memory.Instances[0].Reason = "started by exec: no preloader fits"
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 2
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		require.Contains(t, view.Reason, "cannot adopt it")
		ctx, stop := context.WithTimeout(t.Context(), 10*longestRetry)
		defer stop()
		view, _ = fresh.Await(ctx, "a", func(i launcherapi.Instance) bool { return i.Reason == memory.Instances[0].Reason })
		assert.Equal(t, "started by exec: no preloader fits", view.Reason)
	})
}

func TestLateAdoptionReadsSecrets(t *testing.T) {
	// The process has the secret only later, as if it could not be read at first.
	engine := exec.CommandContext(t.Context(), "sh", "-c", `read go; HF_TOKEN=hf_verysecretword exec sh -c "echo; read stop" serve "$@"`,
		"serve", "model", "--host", "127.0.0.1", "--port", "8123")
	tell, err := engine.StdinPipe()
	require.NoError(t, err)
	says, err := engine.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, engine.Start())
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		a := &memory.Instances[0]
		a.Root = process.ID{PID: engine.Process.Pid}
		a.Facts.Spec.EnvVars = map[string]launcherapi.EnvValue{"HF_TOKEN": {Value: "***"}}
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 2 // the second attempt comes at once
		require.NoError(t, fresh.Recover(t.Context(), memory))
		_, err := io.WriteString(tell, "\n")
		require.NoError(t, err)
		_, err = says.Read(make([]byte, 1))
		require.NoError(t, err)
		_, err = fresh.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.Reason == "" })
		require.NoError(t, err)
		fresh.mu.Lock()
		defer fresh.mu.Unlock()
		assert.NotContains(t, fresh.instances["a"].secrets.Hide("hf_verysecretword is refused"), "verysecret")
	})
	require.NoError(t, tell.Close())
	_ = engine.Wait() // read says 1 at the end
}

func TestRootThatHungWhenFoundIsRecordedOnceAdopted(t *testing.T) {
	for name, failures := range map[string]int{"at once": 0, "late": 2} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.awake("a", "0.9")
				memory := remembered(t, r)
				whole := memory.Instances[0].Root
				require.NotZero(t, whole.StartTime)
				memory.Instances[0].Root.StartTime = 0
				fresh, hard := nextLife(t, r)
				defer fresh.Close(context.Background(), false)
				hard.unadopted = failures
				require.NoError(t, fresh.Recover(t.Context(), memory))
				_, err := fresh.Await(t.Context(), "a", func(i launcherapi.Instance) bool { return i.Reason == "" })
				require.NoError(t, err)
				fresh.mu.Lock()
				defer fresh.mu.Unlock()
				assert.Equal(t, whole, fresh.instances["a"].root)
			})
		})
	}
}
