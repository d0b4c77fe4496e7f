//go:build cluster && clusterlong

// Package guide runs the commands of README.md and spec/guide that take a Kubernetes, as
// they stand, on a cluster of its own with one node and two simulated GPUs.
package guide

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/guide"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const root = "../../.."

// setup is pasted before the blocks of a page that speaks of an installation.
var setup = map[string]string{
	"spec/guide/troubleshooting.md": "helm install hotseat deploy/chart -n hotseat-system --create-namespace --wait\n",
}

// cleanUp is pasted after the blocks of such a page.
var cleanUp = map[string]string{
	"spec/guide/troubleshooting.md": "helm uninstall hotseat -n hotseat-system\n",
}

func TestClusterBlocksOfEachPageRunAsTheyStand(t *testing.T) {
	c, err := cluster.Up(t.Context(), cluster.Options{Name: fmt.Sprintf("guide-%d", os.Getpid()), Nodes: 1, GPUs: 2, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down()) })
	require.NoError(t, c.LoadProduct(t.Context(), filepath.Join(root, "bin"), "dev"))
	pages, err := guide.Pages(root)
	require.NoError(t, err)
	for _, page := range pages {
		blocks, err := guide.Read(root, page)
		require.NoError(t, err)
		blocks = slices.DeleteFunc(blocks, func(b guide.Block) bool { return b.Place != guide.Cluster })
		if len(blocks) == 0 {
			continue
		}
		if before := setup[page]; before != "" {
			blocks = slices.Insert(blocks, 0, guide.Block{Page: page, Commands: before})
		}
		if after := cleanUp[page]; after != "" {
			blocks = append(blocks, guide.Block{Page: page, Commands: after})
		}
		t.Run(filepath.Base(page), func(t *testing.T) { readPage(t, c, blocks) })
	}
}

func readPage(t *testing.T, c *cluster.Cluster, blocks []guide.Block) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var screen bytes.Buffer
	shell, err := guide.NewSession(ctx, checkout(t), c.Environ(), &screen)
	require.NoError(t, err)
	var failed error
	for _, block := range blocks {
		late := time.AfterFunc(patience.LongWait(), stop) // which kills the shell, so that the block fails
		failed = shell.Paste(block)
		late.Stop()
		if failed != nil {
			break
		}
	}
	closed := shell.Close() // from here on nobody writes to screen
	if !assert.NoError(t, failed, screen.String()) {
		describe(t, c)
		return
	}
	require.NoError(t, closed, screen.String())
}

// describe logs what a person would look at first.
func describe(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A"}, {"-n", "hotseat-system", "logs", "deployment/hotseat-controller", "--tail=60"},
	} {
		out, err := c.Kubectl(context.WithoutCancel(t.Context()), nil, args...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
}

// checkout is a folder with what the pages read of this repository.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"deploy", "examples"} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))))
	}
	return dir
}
