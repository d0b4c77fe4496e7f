package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// Of the section "Models of a launcher" of spec/rows.md: instances use the
// models of a store.

// stocked makes a store that has the model org/tiny, and a node that uses it.
func stocked(t *testing.T) (*folderOfModels, *Node, shown) {
	t.Helper()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1<<20))
	f := models(t, hub)
	m := f.pull("hf://org/tiny")
	return f, NewNode(t, "--model-store", f.dir), m
}

func of(model string, gpu int, more ...any) map[string]any {
	spec := map[string]any{"args": []string{model}, "gpu_uuids": On(gpu)}
	for n := 0; n < len(more); n += 2 {
		spec[more[n].(string)] = more[n+1]
	}
	return spec
}

func TestAnInstanceReadsItsModelFromTheStoreAndKeepsItsName(t *testing.T) {
	t.Parallel()
	_, n, m := stocked(t)
	for _, c := range []struct{ model, name string }{
		{"org/tiny", "org/tiny"}, {"hf://org/tiny@main", "hf://org/tiny@main"}, {"org/tiny@" + commit, "org/tiny@" + commit}, {m.ID, m.ID},
	} {
		n.Create("a", of(c.model, 0, "model_cache", "require"))
		i := n.Await("a", "awake")
		assert.Equal(t, "cache", i.ModelFrom)
		assert.Equal(t, m.ID, i.ModelID)
		assert.Equal(t, m.Path, i.ModelPath)
		assert.Equal(t, c.model, i.Model)
		assert.Equal(t, []string{c.name}, i.ServedModelNames)
		assert.Contains(t, cmdline(i.PID), "serve "+m.Path)
		n.Ask(i, "hello")
		n.Delete("a")
	}
	n.Create("a", map[string]any{"options": "org/tiny --served-model-name mine --revision " + commit, "gpu_uuids": On(0)})
	i := n.Await("a", "awake")
	assert.Equal(t, []string{"mine"}, i.ServedModelNames)
	assert.Equal(t, "cache", i.ModelFrom)
	n.Ask(i, "hello")

	swapped := n.SwapDone(map[string]any{"gpu_uuids": On(0), "in": map[string]any{"id": "b", "args": []string{"org/tiny"}, "model_cache": "require"}})
	assert.Equal(t, "cache", swapped.In.ModelFrom)
	n.Ask(n.Get("b"), "hello")

	n.Create("elsewhere", of("org/other", 1))
	i = n.Await("elsewhere", "awake")
	assert.Equal(t, "source", i.ModelFrom)
	assert.Contains(t, i.ModelWhy, `there is no model "org/other"`)
	assert.Contains(t, cmdline(i.PID), "serve org/other")
	n.Delete("elsewhere")
	n.Create("off", of("org/tiny", 1, "model_cache", "off"))
	i = n.Await("off", "awake")
	assert.Equal(t, "source", i.ModelFrom)
	assert.Contains(t, cmdline(i.PID), "serve org/tiny")
}

// Real servers of buckets are pulled from in test/modelsources; this one lists and
// sends two folders as they do.
func TestAnInstanceReadsAFolderOfABucketThatWasPulledWithTheOneAboveIt(t *testing.T) {
	t.Parallel()
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if prefix := r.URL.Query().Get("prefix"); prefix != "" {
			assert.Equal(t, "a/", prefix)
			_, _ = io.WriteString(w, "<ListBucketResult>")
			for _, name := range []string{"b", "c"} {
				_, _ = fmt.Fprintf(w, `<Contents><Key>a/%s/config.json</Key><LastModified>2026-01-02T03:04:05Z</LastModified><ETag>"1"</ETag><Size>2</Size></Contents>`, name)
			}
			_, _ = io.WriteString(w, "</ListBucketResult>")
			return
		}
		w.Header().Set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
		_, _ = io.WriteString(w, "{}")
	}))
	defer bucket.Close()
	f := models(t, nil)
	f.env = append(f.env, "AWS_ENDPOINT_URL="+bucket.URL, "AWS_ACCESS_KEY_ID=ours", "AWS_SECRET_ACCESS_KEY=secret")
	m := f.pull("s3://m/a/")
	n := NewNode(t, "--model-store", f.dir)
	for model, path := range map[string]string{"s3://m/a/": m.Path, "s3://m/a/b": filepath.Join(m.Path, "b")} {
		n.Create("a", of(model, 0, "model_cache", "require"))
		i := n.Await("a", "awake")
		assert.Equal(t, m.ID, i.ModelID)
		assert.Equal(t, path, i.ModelPath)
		assert.Equal(t, []string{model}, i.ServedModelNames)
		assert.Contains(t, cmdline(i.PID), "serve "+path)
		n.Ask(i, "hello")
		n.Delete("a")
	}
	for _, model := range []string{"s3://m/ab", "s3://m/a/none", "s3://m"} {
		a := n.Call("POST", instances, of(model, 0, "model_cache", "require"))
		assert.Equal(t, 422, a.Status, model)
		assert.Contains(t, a.Problem(t).Detail, `no model "`+model+`"`)
		assert.Contains(t, a.Problem(t).Detail, "launcher pull "+model)
	}
	n.Create("a", of("s3://m/ab", 0)) // which vLLM may stream by itself
	assert.Contains(t, cmdline(n.Await("a", "awake").PID), "serve s3://m/ab")
}

func TestAModelInUseIsNotRemovedAndItsUserIsNamed(t *testing.T) {
	t.Parallel()
	f, n, m := stocked(t)
	inUse := func() {
		t.Helper()
		_, errs, code := f.call("rm", m.ID)
		assert.Equal(t, 1, code)
		assert.Contains(t, errs, "in use by instance a of the launcher of "+n.State)
		assert.Equal(t, "Ready", f.list()[0].State)
	}
	n.Create("a", of("org/tiny", 0))
	inUse()
	n.Await("a", "awake")
	inUse()
	n.Sleep("a", 2)
	inUse()
	n.Kill9()
	inUse()
	leases, err := filepath.Glob(filepath.Join(f.dir, "leases", "[0-9a-f]*"))
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.NoError(t, os.Chtimes(leases[0], time.Unix(1, 0), time.Unix(1, 0)))
	n.Start()
	n.Eventually("the next launcher renews the lease, for machines that share the store", func() bool {
		info, err := os.Stat(leases[0])
		return err == nil && info.ModTime().Year() > 2000
	})
	i := n.Get("a")
	assert.Equal(t, "sleeping", i.State)
	assert.Equal(t, m.ID, i.ModelID)
	inUse()
	n.Wake("a")

	in := map[string]any{"id": "b", "args": []string{"org/tiny", "--sim-crash-at-load", "exit:3"}}
	require.Equal(t, 502, n.Swap(map[string]any{"gpu_uuids": On(0), "in": in}).Status)
	_, errs, _ := f.call("rm", m.ID)
	assert.NotContains(t, errs, "instance b", "what a swap has undone uses nothing")
	inUse()
	n.Delete("a")
	_, errs, code := f.call("rm", m.ID)
	assert.Zero(t, code, errs)

	f.pull("hf://org/tiny")
	n.Create("a", of("org/tiny", 0))
	n.Await("a", "awake")
	n.Kill9()
	for _, pid := range engines(n.SimFS) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	inUse() // nobody has looked yet
	n.Start()
	n.Await("a", "failed")
	n.Eventually("the model of an instance that has ended can be removed", func() bool {
		_, _, code := f.call("rm", m.ID)
		return code == 0
	})
}

func TestOfARemovalAndACreateOneWins(t *testing.T) {
	t.Parallel()
	f, n, m := stocked(t)
	for range 10 {
		var created Answer
		var removed int
		var both sync.WaitGroup
		both.Go(func() { _, _, removed = f.call("rm", m.ID) })
		both.Go(func() { created = n.Call("PUT", instances+"/a", of("org/tiny", 0, "model_cache", "require")) })
		both.Wait()
		if created.Status == 201 {
			assert.Equal(t, 1, removed)
			n.Ask(n.Await("a", "awake"), "hello")
			n.Delete("a")
			continue
		}
		assert.Zero(t, removed)
		assert.Contains(t, []int{409, 422}, created.Status)
		assert.Contains(t, created.Problem(t).Detail, "org/tiny")
		f.pull("hf://org/tiny")
	}
}

// What happens to the files of a model does not reach who serves it.
func TestAnInstanceGoesOnWhileItsModelIsDamagedAndPulledAgain(t *testing.T) {
	t.Parallel()
	f, n, m := stocked(t)
	n.Create("a", of("org/tiny", 0))
	i := n.Await("a", "awake")
	require.NoError(t, os.Remove(filepath.Join(m.Path, "config.json")))
	n.Ask(i, "hello")
	refused := n.Call("PUT", instances+"/b", of("org/tiny", 1, "model_cache", "require"))
	assert.Equal(t, 422, refused.Status)
	assert.Contains(t, refused.Problem(t).Detail, "config.json is missing; pull it again")
	n.Create("b", of("org/tiny", 1))
	assert.Contains(t, n.Await("b", "awake").ModelWhy, "config.json is missing")
	assert.False(t, f.pull("hf://org/tiny").There)
	n.Sleep("a", 2)
	n.Ask(n.Wake("a"), "hello")
}

func TestAModelThatCannotComeFromTheStoreIsRefusedInWords(t *testing.T) {
	t.Parallel()
	_, n, _ := stocked(t)
	without := NewNode(t)
	for name, c := range map[string]struct {
		node  *Node
		spec  map[string]any
		field string
		says  []string
	}{
		"an address that was not pulled": {n, of("hf://org/none", 0), "body.args", []string{`no model "hf://org/none"`, "launcher pull hf://org/none"}},
		"a name that has to be there":    {n, of("org/none", 0, "model_cache", "require"), "body.args", []string{"launcher pull hf://org/none"}},
		"a revision that is not there": {n, map[string]any{"options": "org/tiny --revision v2", "model_cache": "require"}, "body.options",
			[]string{commit, "not in v2", "launcher pull hf://org/tiny@v2"}},
		"an address without a store":      {without, of("hf://org/tiny", 0), "body.args", []string{"--model-store"}},
		"a store that is not there":       {without, of("org/tiny", 0, "model_cache", "require"), "body.model_cache", []string{"--model-store"}},
		"an address that no engine reads": {n, of("hf://org/tiny", 0, "model_cache", "off"), "body.model_cache", []string{"hf://"}},
		"a word that model_cache is not":  {n, of("org/tiny", 0, "model_cache", "always"), "body.model_cache", []string{"auto, require, off"}},
	} {
		a := c.node.Call("POST", instances, c.spec)
		assert.Equal(t, 422, a.Status, name)
		p := a.Problem(t)
		require.NotEmpty(t, p.Errors, name)
		assert.Equal(t, c.field, p.Errors[0].Location, name)
		for _, word := range c.says {
			assert.Contains(t, p.Detail, word, name)
			if strings.HasPrefix(word, "launcher pull") {
				assert.Equal(t, "model_not_found", p.Cause, name) // no mistake of the request
			}
		}
	}
	for _, i := range []*Node{n, without} {
		assert.Empty(t, engines(i.SimFS))
	}
}
