package modelsource

import (
	"context"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// selected is a source with a selection of its files.
type selected struct {
	Source
	modelref.Selection
	note    func(text string)
	excused map[string]bool // the patterns that left out what the source could not read
	at      []int           // the index of each selected file among the source's files
}

// Select returns a source with only the files that a clean selection takes. It calls note
// for each pattern that excludes nothing.
func Select(s Source, selection modelref.Selection, note func(text string)) Source {
	if selection.All() {
		return s
	}
	excused := map[string]bool{}
	if f, ok := s.(*folder); ok {
		f.selection, f.excused = selection, excused
	}
	return &selected{Source: s, Selection: selection, note: note, excused: excused}
}

func (s *selected) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	m, err := s.Source.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	all := m.Files
	m.Selection, m.Files, m.LeftOut, s.at = s.Selection, nil, nil, nil
	for n, f := range all {
		if s.Takes(f.Path) {
			m.Files, s.at = append(m.Files, f), append(s.at, n)
		} else {
			m.LeftOut = append(m.LeftOut, f.Path)
		}
	}
	for _, pattern := range s.Include {
		if !matchesAny(pattern, all) {
			return nil, invalid("no file of %s matches --include %s; it has %s", m.URI, pattern, names(all))
		}
	}
	if len(m.Files) == 0 {
		return nil, invalid("the selection %[2]s takes no file of %[1]s; it has %[3]s", m.URI, s.Selection, names(all))
	}
	for _, pattern := range s.Exclude {
		if !matchesAny(pattern, all) && !s.excused[pattern] {
			s.note("no file of " + m.URI + " matches --exclude " + pattern)
		}
	}
	return m, nil
}

func (s *selected) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	return s.Source.Open(ctx, s.at[n], offset)
}

func matchesAny(pattern string, files []fetchapi.File) bool {
	for _, f := range files {
		if modelref.Match(pattern, f.Path) {
			return true
		}
	}
	return false
}

// maxNames is how many files an error names.
const maxNames = 10

func names(files []fetchapi.File) string {
	var all []string
	for _, f := range files[:min(maxNames, len(files))] {
		all = append(all, f.Path)
	}
	if len(files) > maxNames {
		all = append(all, "…")
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
