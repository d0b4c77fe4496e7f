package figures

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Part is a share of a bench's figures, which can be taken alone.
type Part[B any] struct {
	Name    string
	Heading string // of the table that begins with the part; empty: it goes on with that of the part before
	Run     func(B) ([]Row, error)
}

// Parts are those of a bench, in the order in which they run.
type Parts[B any] []Part[B]

// Names lists them for people.
func (p Parts[B]) Names() string {
	names := make([]string, len(p))
	for i, part := range p {
		names[i] = part.Name
	}
	return strings.Join(names, ", ")
}

// chosen are the parts that only names, with commas between them. Empty: all.
func (p Parts[B]) chosen(only string) (Parts[B], error) {
	if only == "" {
		return p, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(p, func(part Part[B]) bool { return part.Name == name }) {
			return nil, fmt.Errorf("there is no part %q: the parts are %s", name, p.Names())
		}
	}
	return slices.DeleteFunc(slices.Clone(p), func(part Part[B]) bool { return !slices.Contains(names, part.Name) }), nil
}

// Run runs the parts that only names, with commas between them, one after the
// other, and tells progress how long each took. Empty: all. Where a name is
// wrong, none is run. With an error come the rows of the parts before it.
func (p Parts[B]) Run(ctx context.Context, bench B, only string, progress io.Writer) ([]Row, error) {
	parts, err := p.chosen(only)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, part := range parts {
		began := time.Now()
		more, err := part.Run(bench)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", part.Name, err)
		}
		_, _ = fmt.Fprintf(progress, "%s took %s\n", part.Name, time.Since(began).Round(100*time.Millisecond))
		if len(more) > 0 {
			more[0].Heading = part.Heading
		}
		rows = append(rows, more...)
	}
	return rows, nil
}
