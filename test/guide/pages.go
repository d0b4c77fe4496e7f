package guide

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Place says where a block of commands runs.
type Place string

// The places of blocks.
const (
	Shell    Place = "shell"    // the shell of the page
	Terminal Place = "terminal" // a terminal of its own
	Cluster  Place = "cluster"  // a shell that talks to a Kubernetes
	NotRun   Place = "not run"
)

// Block is a block of commands.
type Block struct {
	Page     string // path below the root of the repository
	Line     int    // of the block's fence
	Place    Place
	Terminal string // name of its terminal, at the place Terminal
	Reason   string // why it is not run, at the place NotRun
	Commands string
}

// String says where the block stands.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// First is the block's first line.
func (b Block) First() string {
	first, _, _ := strings.Cut(b.Commands, "\n")
	return first
}

// shown are the blocks that hold no commands.
var shown = []string{"text", "yaml", "json", "mermaid"}

// Pages lists README.md and the pages of the guide.
func Pages(root string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, "spec", "guide", "*.md"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the pages of the guide: %w", err)
	}
	pages := []string{"README.md"}
	for _, path := range found {
		pages = append(pages, "spec/guide/"+filepath.Base(path))
	}
	return pages, nil
}

// Read returns the blocks of commands of a page, in their order.
func Read(root, page string) ([]Block, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("cannot read a page of the guide: %w", err)
	}
	return parse(page, text)
}

func parse(page string, text []byte) ([]Block, error) {
	var blocks []Block
	var open *Block // nil: outside of blocks
	for n, line := range slices.Collect(bytes.Lines(text)) {
		mark, isFence := strings.CutPrefix(strings.TrimRight(string(line), "\n"), "```")
		switch {
		case !isFence && open != nil:
			open.Commands += string(line)
		case isFence && open == nil:
			block, err := begin(page, n+1, mark)
			if err != nil {
				return nil, err
			}
			open = &block
		case isFence:
			if open.Place != "" {
				blocks = append(blocks, *open)
			}
			open = nil
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block has no end", open)
	}
	return blocks, nil
}

// begin reads the mark behind a fence. A block that holds no commands has no place.
func begin(page string, line int, mark string) (Block, error) {
	b := Block{Page: page, Line: line}
	language, where, _ := strings.Cut(mark, " ")
	if language != "sh" {
		if !slices.Contains(shown, mark) {
			return b, fmt.Errorf("%s: the block is marked %q; mark it sh, or one of %v", b, mark, shown)
		}
		return b, nil
	}
	if name, ok := strings.CutPrefix(where, "terminal="); ok && name != "" {
		b.Place, b.Terminal = Terminal, name
		return b, nil
	}
	if reason, ok := strings.CutPrefix(where, "not-run: "); ok && reason != "" {
		b.Place, b.Reason = NotRun, reason
		return b, nil
	}
	switch where {
	case "":
		b.Place = Shell
	case "cluster":
		b.Place = Cluster
	default:
		return b, fmt.Errorf("%s: unknown mark %q", b, mark)
	}
	return b, nil
}
