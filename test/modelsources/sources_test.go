//go:build modelservers

package modelsources

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAModelIsPulledOnceAndAnewWhenItHasChanged(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		files := map[string][]byte{"config.json": []byte("{}"), "sub/model.safetensors": random(3 << 20), "sub/empty": {}}
		s.put(files, "org/tiny")
		m := s.pull(s.uri("org/tiny"))
		assert.Equal(t, s.uri("org/tiny"), m.URI)
		assert.EqualValues(t, 3<<20+2, m.Bytes)
		s.has(m, files)
		s.verified()
		assert.True(t, s.pull(s.uri("org/tiny")).There)

		files["config.json"] = []byte(`{"another": "one"}`)
		s.proxy.seen()
		s.put(files, "org/tiny")
		next := s.pull(s.uri("org/tiny"))
		assert.NotEqual(t, m.Revision, next.Revision)
		s.has(next, files)
	})
}

func TestAPullThatIsKilledGoesOnAtTheByte(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const size = 6 << 20
		files := map[string][]byte{"model.safetensors": random(size)}
		s.put(files, "org/cut")
		cmd := s.command("pull", "--bytes-per-second", "1MiB", s.uri("org/cut"))
		require.NoError(t, cmd.Start())
		s.fetched(2 << 20)
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait() // it was killed
		s.proxy.seen()
		m := s.pull(s.uri("org/cut"))
		s.has(m, files)
		s.verified()
		ranges, _ := s.proxy.seen()
		assert.NotEmpty(t, ranges, "the rest was asked for")
		assert.Less(t, m.NetworkBytes, int64(size-1<<20), "what was there was not fetched again")
	})
}

func TestOfAFetcherThatIsKilledAtMostAChunkIsFetchedTwice(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const size, chunk = 40 << 20, 16 << 20
		files := map[string][]byte{"model.safetensors": random(size)}
		s.put(files, "org/cut")
		cmd := s.command("pull", "--bytes-per-second", "8MiB", s.uri("org/cut"))
		require.NoError(t, cmd.Start())
		s.fetched(20 << 20)
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		require.NoError(t, err)
		for _, thread := range threads {
			children, err := os.ReadFile(thread)
			require.NoError(t, err)
			for _, pid := range strings.Fields(string(children)) {
				n, err := strconv.Atoi(pid)
				require.NoError(t, err)
				require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
			}
		}
		require.Error(t, cmd.Wait())
		s.proxy.seen()
		m := s.pull(s.uri("org/cut"))
		s.has(m, files)
		_, sent := s.proxy.seen()
		assert.LessOrEqual(t, m.NetworkBytes, int64(size-chunk))
		assert.Less(t, sent, int64(size-chunk+1<<20), "nor was it sent to be thrown away")
	})
}

func TestAFileThatHasChangedSinceAPullWasBrokenOffIsFetchedAnew(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		files := map[string][]byte{"a.safetensors": random(6 << 20), "b.safetensors": random(3 << 20)}
		s.put(files, "org/cut")
		cmd := s.command("pull", "--bytes-per-second", "2MiB", s.uri("org/cut"))
		require.NoError(t, cmd.Start())
		s.fetched(3 << 20)
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait() // it was killed
		files["a.safetensors"] = random(6<<20 - 1)
		s.put(files, "org/cut")
		s.has(s.pull(s.uri("org/cut")), files)
		s.verified()
	})
}

func TestAFileThatChangesWhileItIsFetchedIsFetchedAnew(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *site) {
		const size = 32 << 20 // more than is on its way between two processes
		files := map[string][]byte{"model.safetensors": random(size)}
		s.put(files, "org/cut")
		cmd := s.command("pull", "--bytes-per-second", "8MiB", s.uri("org/cut"))
		var said bytes.Buffer
		cmd.Stderr = &said
		require.NoError(t, cmd.Start())
		s.fetched(1 << 20)
		files["model.safetensors"] = random(size - 1)
		s.put(files, "org/cut")
		s.proxy.cut()
		require.NoError(t, cmd.Wait(), &said)
		assert.Contains(t, said.String(), "the source has changed since the fetch began")
		s.has(s.pull(s.uri("org/cut")), files)
	})
}

func TestAFolderIsNotItsNeighbourAndAnObjectIsOneFile(t *testing.T) {
	eachBucket(t, func(t *testing.T, s *site) {
		s.put(map[string][]byte{"one": []byte("1"), "b/two": []byte("2")}, "m/a")
		s.put(map[string][]byte{"three": []byte("3")}, "m/ab")
		for _, address := range []string{s.uri("m/a"), s.uri("m/a/")} {
			m := s.pull(address)
			assert.Equal(t, s.uri("m/a"), m.URI)
			assert.EqualValues(t, 2, m.Bytes)
		}
		s.has(s.pull(s.uri("m/a/b")), map[string][]byte{"two": []byte("2")})
		s.has(s.pull(s.uri("m/a/one")), map[string][]byte{"one": []byte("1")})
		_, said, ok := s.try(s.uri("m/none"))
		assert.False(t, ok)
		assert.Contains(t, said, "NotFound: there is no object named "+s.uri("m/none"))
	})
}
