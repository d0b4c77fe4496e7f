package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// A claim is a volume that Kubernetes mounts; here it is a folder, which a Job's program
// fills and launchers read.
type claim struct {
	*folderOfModels
	mount string
}

func newClaim(t *testing.T, hub *hubserver.Hub) *claim {
	t.Helper()
	c := &claim{folderOfModels: models(t, hub), mount: t.TempDir()}
	c.dir = filepath.Join(c.mount, fetchapi.ClaimStore)
	return c
}

// fill is `modelfetch pull`, as Jobs call it.
func (c *claim) fill(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(filepath.Dir(bin.launcher), "modelfetch"), append([]string{"pull", "--store=" + c.dir, "--result=" + c.mount + "/result"}, args...)...)
	cmd.Env = append(os.Environ(), c.env...)
	return cmd
}

// filled runs it to its end, and gives its outcome.
func (c *claim) filled(args ...string) (o fetchapi.Outcome, code int, log string) {
	c.t.Helper()
	cmd := c.fill(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	_ = cmd.Run()
	text, err := os.ReadFile(c.mount + "/result")
	require.NoError(c.t, err, said.String())
	require.NoError(c.t, json.Unmarshal(text, &o))
	return o, cmd.ProcessState.ExitCode(), said.String()
}

func TestAJobsProgramThatMayNotWriteToItsClaimSaysSo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT SHOWN: only root can run a command as somebody else")
	}
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	c := newClaim(t, hub)
	program := filepath.Join(t.TempDir(), "modelfetch")
	for _, dir := range []string{c.mount, filepath.Dir(program)} { // others do not get into the folders of a test
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	cmd := c.fill("hf://org/tiny")
	require.NoError(t, os.Link(cmd.Path, program))
	result := c.mount + "/result"
	require.NoError(t, os.WriteFile(result, nil, 0o666))
	require.NoError(t, os.Chmod(result, 0o666))
	cmd.Path, cmd.Dir, cmd.SysProcAttr = program, "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.Error(t, err, string(out))
	text, err := os.ReadFile(result)
	require.NoError(t, err)
	var o fetchapi.Outcome
	require.NoError(t, json.Unmarshal(text, &o), string(out))
	assert.Equal(t, fetchapi.ExitRefused, cmd.ProcessState.ExitCode())
	assert.Equal(t, fetchapi.ReasonClaimNotWritable, o.Error.Reason)
	assert.Contains(t, o.Error.Detail, "user 65534 may not write to the claim; set spec.fetch.runAsUser to a user who may")
}

func TestAJobsProgramFillsAClaimThatInstancesReadWithoutALease(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1<<20))
	c := newClaim(t, hub)
	o, code, log := c.filled("--holder=ModelCache/ns/tiny/u", "hf://org/tiny")
	require.Zero(t, code, log)
	assert.Equal(t, commit, o.Revision)
	assert.False(t, o.Lacks)
	some, code, log := c.filled("--include=config.json", "hf://org/tiny")
	require.Zero(t, code, log)
	assert.True(t, some.Lacks, "weights, which are needed by who names the model")
	require.NoError(t, os.MkdirAll(filepath.Join(c.mount, "plain", "m"), 0o755))
	require.NoError(t, os.Symlink("/etc", filepath.Join(c.mount, "out")))
	n := NewNode(t, "--model-claims", "shared="+c.mount+",empty="+t.TempDir())
	path := filepath.Join(c.dir, "models", o.ID, "files")

	n.Create("a", of("org/tiny", 0, "model_cache", "require"))
	i := n.Await("a", "awake")
	assert.Equal(t, []string{"cache", o.ID, path}, []string{i.ModelFrom, i.ModelID, i.ModelPath})
	assert.Contains(t, cmdline(i.PID), "serve "+path)
	assert.Equal(t, []string{"org/tiny"}, i.ServedModelNames)
	n.Ask(i, "hello")
	leases, err := os.ReadDir(filepath.Join(c.dir, "leases"))
	require.NoError(t, err)
	for _, l := range leases {
		assert.True(t, strings.HasPrefix(l.Name(), "."), "a launcher writes nothing to a claim: %s", l.Name())
	}
	n.Delete("a")

	n.Create("plain", of("pvc://shared/plain/m", 0))
	i = n.Await("plain", "awake")
	assert.Equal(t, "source", i.ModelFrom)
	assert.Contains(t, cmdline(i.PID), "serve "+filepath.Join(c.mount, "plain", "m"))
	assert.Equal(t, []string{"pvc://shared/plain/m"}, i.ServedModelNames)
	for model, says := range map[string]string{
		"pvc://shared/plain/none": `claim shared has no folder "/plain/none"`,
		"pvc://shared/out":        `claim shared has no folder "/out": `,
		"pvc://other/m":           `this launcher has no claim "other" (it has the claims empty, shared); name it in spec.modelCache.claims`,
		"pvc://shared/../../etc":  `claim shared has no folder "/etc"`,
	} {
		a := n.Call("POST", instances, of(model, 1))
		assert.Equal(t, 422, a.Status, model)
		assert.Contains(t, a.Problem(t).Detail, says)
	}
	a := n.Call("POST", instances, of("org/other", 1, "model_cache", "require"))
	assert.Contains(t, a.Problem(t).Detail, `there is no model "org/other"`)
	n.Create("off", of("org/tiny", 1, "model_cache", "off"))
	assert.Equal(t, "source", n.Await("off", "awake").ModelFrom)
}

func TestALaunchersOwnStoreComesBeforeClaimsAndPullsFromThem(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1<<10))
	hub.Put("org/more", tiny(1<<11))
	c, own := newClaim(t, hub), models(t, hub)
	for _, model := range []string{"hf://org/tiny", "hf://org/more"} {
		_, code, log := c.filled(model)
		require.Zero(t, code, log)
	}
	m := own.pull("hf://org/tiny")
	from := filepath.Join(c.mount, "from")
	require.NoError(t, os.CopyFS(from, os.DirFS(m.Path)))
	copied := own.pull("--claim", "shared="+c.mount, "pvc://shared/from/")
	assert.Equal(t, "pvc://shared/from", copied.URI)
	_, errs, code := own.call("pull", "pvc://shared/from")
	assert.NotZero(t, code)
	assert.Contains(t, errs, `the claim "shared" of pvc://shared/from is not mounted here`)
	n := NewNode(t, "--model-store", own.dir, "--model-claims", "shared="+c.mount)
	for model, path := range map[string]string{"org/tiny": m.Path, "org/more": c.dir, "pvc://shared/from": copied.Path} {
		n.Create("a", of(model, 0))
		i := n.Await("a", "awake")
		assert.Equal(t, "cache", i.ModelFrom, model)
		assert.True(t, strings.HasPrefix(i.ModelPath, path), "%s: %s", model, i.ModelPath)
		n.Delete("a")
	}
}

func TestAJobsProgramThatIsEndedGoesOnAndSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1<<20))
	c := newClaim(t, hub)
	slow := c.fill("--bytes-per-second=524288", "hf://org/tiny")
	require.NoError(t, slow.Start())
	require.Eventually(t, func() bool { return c.staged() > 100<<10 }, patience, 10*time.Millisecond)
	require.NoError(t, slow.Process.Signal(syscall.SIGTERM))
	_ = slow.Wait()
	assert.Equal(t, fetchapi.ExitBroken, slow.ProcessState.ExitCode())
	text, err := os.ReadFile(c.mount + "/result")
	require.NoError(t, err)
	var broken fetchapi.Outcome
	require.NoError(t, json.Unmarshal(text, &broken))
	require.NotNil(t, broken.Error, "the status of the ModelCache has no other words")
	assert.Contains(t, broken.Error.Detail, "terminated")
	o, code, log := c.filled("--storage-limit=1000", "hf://org/tiny")
	assert.Equal(t, fetchapi.ExitRefused, code, log)
	assert.Equal(t, fetchapi.ReasonCapacityExceeded, o.Error.Reason)
	assert.Contains(t, o.Error.Detail, "the limit of 1000 bytes")
	for _, uri := range []string{"ftp://x/y", "hf://org/none", "hf://org/tiny@none"} {
		o, code, _ = c.filled(uri)
		assert.Equal(t, fetchapi.ExitRefused, code, uri)
		assert.NotEmpty(t, o.Error.Detail)
	}
	o, code, log = c.filled("hf://org/tiny")
	require.Zero(t, code, log)
	require.Nil(t, o.Error)
	o, code, log = c.filled("hf://org/tiny")
	require.Zero(t, code, log)
	assert.Equal(t, commit, o.Revision, "what is there is found")
}
