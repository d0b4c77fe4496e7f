package guide

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	testpatience "hotseat.dev/hotseat/test/helpers/patience"
)

// address is where every launcher of the pages listens.
const address = "127.0.0.1:8001"

// patience bounds the wait for the end of a block. It is no measure of speed.
var patience = testpatience.Wait()

// setup is pasted before the blocks of a page that speaks of a launcher and of an instance
// that the reader has.
var setup = map[string][]Block{
	"spec/guide/troubleshooting.md": {
		{Place: Terminal, Terminal: "launcher", Commands: "bin/launcher serve --gpus simulated:2 --vllm bin/enginesim --state-dir ~/hotseat-demo\n"},
		{Place: Shell, Commands: "bin/launcher run --id a --gpu 0 --wait -- Qwen/Qwen3-0.6B\n"},
	},
}

// output is what a terminal shows.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// reader pastes the blocks of a page.
type reader struct {
	t        *testing.T
	folder   string
	env      []string
	screen   output
	shell    *Session
	terminal map[string]*Foreground
}

func TestBlocksOfEachPageRunAsTheyStand(t *testing.T) {
	pages, err := Pages(root)
	require.NoError(t, err)
	for _, page := range pages {
		blocks, err := Read(root, page)
		require.NoError(t, err)
		if !slices.ContainsFunc(blocks, func(b Block) bool { return b.Place == Shell || b.Place == Terminal }) {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) { readPage(t, slices.Concat(setup[page], blocks)) })
	}
}

func readPage(t *testing.T, blocks []Block) {
	t.Helper()
	if answers(t.Context()) {
		require.Fail(t, "something listens at "+address+" already: end it, or run this test as root, which gives it a network of its own")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := &reader{t: t, folder: checkout(t), env: environment(t), terminal: map[string]*Foreground{}}
	defer func() {
		if !t.Failed() {
			return
		}
		late := time.AfterFunc(patience, stop)
		defer late.Stop()
		for _, terminal := range r.terminal {
			_ = terminal.CtrlC() // the launcher stops its engines
		}
		t.Log(r.screen.String())
	}()
	var err error
	r.shell, err = NewSession(ctx, r.folder, r.env, &r.screen)
	require.NoError(t, err)
	for _, block := range blocks {
		late := time.AfterFunc(patience, stop) // which kills the shells, so that the block fails
		r.paste(ctx, block)
		late.Stop()
	}
	require.NoError(t, r.shell.Close())
	for name, terminal := range r.terminal {
		require.NoError(t, terminal.CtrlC(), "terminal %s", name)
	}
}

func (r *reader) paste(ctx context.Context, b Block) {
	r.t.Helper()
	switch b.Place {
	case Shell:
		require.NoError(r.t, r.shell.Paste(b))
	case Terminal:
		r.foreground(ctx, b)
	case NotRun, Cluster: // see TestBlocksThatAreNotRunAreListed, and package test/cluster/guide
	}
}

// answers says whether something listens at the launchers' address.
func answers(ctx context.Context) bool {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close() // nothing was written
	return true
}

// foreground has a launcher serve in a terminal.
func (r *reader) foreground(ctx context.Context, b Block) {
	r.t.Helper()
	if before := r.terminal[b.Terminal]; before != nil {
		require.NoError(r.t, before.CtrlC(), "before %s", b)
	}
	terminal, err := Run(ctx, r.folder, r.env, &r.screen, b)
	require.NoError(r.t, err)
	r.terminal[b.Terminal] = terminal
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case err := <-terminal.Ended():
			require.Fail(r.t, "the launcher does not serve", "%s: %v", b, err)
		case <-tick.C:
		}
		if answers(ctx) {
			tick.Stop()
			return
		}
	}
}

func TestBlocksThatAreNotRunAreListed(t *testing.T) {
	pages, err := Pages(root)
	require.NoError(t, err)
	found := map[string][]string{}
	for _, page := range pages {
		blocks, err := Read(root, page)
		require.NoError(t, err)
		for _, b := range blocks {
			if b.Place == NotRun {
				found[page] = append(found[page], b.First()+"  # "+b.Reason)
			}
		}
	}
	assert.Equal(t, notRun, found)
}

// allPages returns the guide, and all other documents of the folder spec.
func allPages(t *testing.T) []string {
	t.Helper()
	pages, err := Pages(root)
	require.NoError(t, err)
	for _, folder := range []string{"spec", "spec/decisions"} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		require.NoError(t, err)
		for _, path := range found {
			pages = append(pages, folder+"/"+filepath.Base(path))
		}
	}
	return pages
}

// A merge left both versions of a paragraph in a page, with the marks between them.
func TestPagesHaveNoMarksOfAMerge(t *testing.T) {
	marks := regexp.MustCompile(`(?m)^(<<<<<<<|=======|>>>>>>>)( |$)`)
	for _, page := range allPages(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		assert.Empty(t, marks.FindAllString(string(text), -1), page)
	}
}

func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	pages := allPages(t)
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, found := range link.FindAllSubmatch(text, -1) {
			target := filepath.Join(root, page)
			if len(found[1]) > 0 {
				target = filepath.Join(root, filepath.Dir(page), string(found[1]))
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			if assert.NoError(t, err, "%s: %s", page, found[0]) && len(found[2]) > 0 {
				assert.Contains(t, anchors(content), string(found[2][1:]), "%s: %s", page, found[0])
			}
		}
	}
}

// anchors are the names by which a browser finds the headings of a page.
func anchors(text []byte) []string {
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(string(heading[1])), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

func TestREADMEFitsOnAFewScreens(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	assert.LessOrEqual(t, bytes.Count(text, []byte("\n")), 250)
}
