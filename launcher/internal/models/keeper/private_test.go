package keeper

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// private returns a private version, whose source takes HF_TOKEN.
func private() modelstore.Version {
	return modelstore.Version{Key: "k", Manifest: fetchapi.Manifest{URI: "hf://org/m", Revision: "1"}, Wants: []modelstore.Want{{Key: "k", Private: true, Holder: "a"}}}
}

func token(value string) func(string) string {
	return func(name string) string { return map[string]string{"HF_TOKEN": value}[name] }
}

func TestPrivateModelNeedsPermissionOfItsSource(t *testing.T) {
	k, _ := newKeeper(t, "asks for a token")
	v := private()
	require.NoError(t, k.MayRead(v, token("right")))
	for name, env := range map[string]func(string) string{"another token": token("wrong"), "none": token("")} {
		err := k.MayRead(v, env)
		assert.Equal(t, launcherapi.CodeForbidden, launcher.CodeOf(err), name)
		assert.ErrorContains(t, err, "set HF_TOKEN in the instance's env_vars", name)
		assert.NotContains(t, err.Error(), "wrong")
	}
	v.Wants = append(v.Wants, modelstore.Want{Key: "k", Holder: "b"})
	assert.NoError(t, k.MayRead(v, token("")), "somebody else wants it for all")
	v.Wants = nil
	assert.NoError(t, k.MayRead(v, token("")))
}

// A branch moves, and its old version, which nobody wants any more, stays private.
func TestVersionThatLostItsLastPrivateWantIsNotServedWithoutPermission(t *testing.T) {
	k, _ := newKeeper(t, "asks for a token")
	s, err := modelstore.Open(modelstore.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for _, revision := range []string{"1", "2"} {
		m := &fetchapi.Manifest{URI: "hf://org/m", Revision: revision, Files: []fetchapi.File{{Path: "a", SHA256: hashOf(revision), Size: 1}}}
		w := modelstore.Want{Key: m.Key(), URI: m.URI, Ref: "main", Holder: "pool", Private: true, Since: time.Now()}
		f, err := s.Admit(m, w)
		require.NoError(t, err)
		require.NoError(t, f.Want(w))
		require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), m.Files[0].SHA256), []byte(revision), 0o600))
		_, err = f.Publish(m)
		require.NoError(t, err)
	}
	newer, err := s.Wanted("org/m", "2", modelref.Lacks)
	require.NoError(t, err)
	require.NoError(t, s.Remove(newer.Key, "pool"))
	v, err := s.Wanted("org/m", "1", modelref.Lacks)
	require.NoError(t, err)
	assert.Empty(t, v.Wants)
	assert.Equal(t, launcherapi.CodeForbidden, launcher.CodeOf(k.MayRead(v, token(""))))
	assert.NoError(t, k.MayRead(v, token("right")))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestProofCountsLongerWhileTheSourceIsUnavailable(t *testing.T) {
	for name, own := range map[string]bool{"by the instance's credentials": false, "by the launcher's own": true} {
		t.Run(name, func(t *testing.T) {
			k, _ := newKeeper(t, "lets all read")
			env := token("x")
			if own {
				env = token("")
			}
			ago := func(d time.Duration) {
				if own {
					k.proved["k"] = time.Now().Add(-d)
					return
				}
				files, err := filepath.Glob(filepath.Join(k.opts.Dir, modelstore.ProofsDir, "*"))
				require.NoError(t, err)
				require.Len(t, files, 1)
				require.NoError(t, os.Chtimes(files[0], time.Time{}, time.Now().Add(-d)))
			}
			reads := func(source string) error {
				t.Helper()
				t.Setenv(childEnv, source)
				return k.MayRead(private(), env)
			}
			assert.Equal(t, launcherapi.CodeSourceFailed, launcher.CodeOf(reads("is away")), "nobody has proved anything")
			require.NoError(t, reads("lets all read"))
			require.NoError(t, reads("refuses all"), "an hour is not over")
			ago(proofFresh)
			require.NoError(t, reads("is away"))
			ago(proofFresh)
			assert.Equal(t, launcherapi.CodeForbidden, launcher.CodeOf(reads("refuses all")))
			assert.Equal(t, launcherapi.CodeSourceFailed, launcher.CodeOf(reads("is away")), "what was taken back is not there")
			require.NoError(t, reads("lets all read"))
			ago(proofLasts)
			assert.Equal(t, launcherapi.CodeSourceFailed, launcher.CodeOf(reads("is away")), "not for ever")
		})
	}
}

func TestExpiredProofsAreRemoved(t *testing.T) {
	k, _ := newKeeper(t, "lets all read")
	require.NoError(t, k.MayRead(private(), token("a")))
	files, err := filepath.Glob(filepath.Join(k.opts.Dir, modelstore.ProofsDir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Chtimes(files[0], time.Time{}, time.Now().Add(-proofLasts-time.Minute)))
	require.NoError(t, k.MayRead(private(), token("b")))
	assert.NoFileExists(t, files[0])
	info, err := os.Stat(filepath.Join(k.opts.Dir, modelstore.ProofsDir))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestProvedModelDoesNotWaitForOtherSources(t *testing.T) {
	k, _ := newKeeper(t, "lets all read")
	v, other := private(), private()
	other.Key = "other"
	require.NoError(t, k.MayRead(v, token("x")))
	t.Setenv(childEnv, "silent")
	asking, over := make(chan struct{}), make(chan error, 1)
	k.opts.Start = func(modelfetch *exec.Cmd) (func() bool, error) {
		close(asking)
		return func() bool { return false }, modelfetch.Start()
	}
	go func() { over <- k.MayRead(other, token("x")) }()
	<-asking
	require.NoError(t, k.MayRead(v, token("x")))
	select {
	case err := <-over:
		require.Fail(t, "the other source has answered", "%v", err)
	default:
	}
	require.NoError(t, k.Close())
	require.Error(t, <-over)
}

func TestInvalidAddressAndRefAreRefusedAtOnce(t *testing.T) {
	k, outcomes := newKeeper(t, "silent")
	for location, r := range map[string]launcherapi.ModelRequest{
		"body.uri": {URI: "https://user:s3cret@host/m"},
		"body.ref": {URI: "hf://org/m", Ref: "../../x"},
	} {
		_, err := k.Pull(t.Context(), r)
		var refused *launcher.Error
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, location, refused.Location)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	assert.Empty(t, *outcomes, "no pull has begun")
}

// The store removes only what it has written.
func TestFilesOfOthersAmongTheProofsStay(t *testing.T) {
	k, _ := newKeeper(t, "lets all read")
	proofs := filepath.Join(k.opts.Dir, modelstore.ProofsDir)
	require.NoError(t, os.Mkdir(proofs, 0o700))
	others, long := filepath.Join(proofs, "notes.txt"), time.Now().Add(-2*proofLasts)
	require.NoError(t, os.WriteFile(others, []byte("x"), 0o600))
	require.NoError(t, os.Chtimes(others, long, long))
	p := k.proofOf("key", fetchapi.Credentials{"TOKEN": "x"})
	p.record()
	require.FileExists(t, others)
	_, proved := p.when()
	require.True(t, proved)
	p.drop()
	_, proved = p.when()
	require.False(t, proved)
}
