package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// The forms of an answer.
const (
	formatTable = "table"
	formatWide  = "wide" // the table with all columns
	formatJSON  = "json"
)

// formFlag is the value of -o: one of the forms that the command has.
type formFlag struct {
	value *string
	forms []string
}

func (f *formFlag) String() string { return *f.value }

func (f *formFlag) Type() string { return strings.Join(f.forms, "|") }

func (f *formFlag) Set(text string) error {
	if !slices.Contains(f.forms, text) {
		last := len(f.forms) - 1
		return fmt.Errorf("it is %s or %s", strings.Join(f.forms[:last], ", "), f.forms[last])
	}
	*f.value = text
	return nil
}

// formatFlag adds -o: table and json, and between them the other forms of the
// command.
func (c *cli) formatFlag(cmd *cobra.Command, more ...string) {
	c.format = formatTable
	forms := append(append([]string{formatTable}, more...), formatJSON)
	cmd.Flags().VarP(&formFlag{&c.format, forms}, "output", "o", "output format: for people, or JSON as in the API")
	complete(cmd, "output", forms...)
}

// show writes an answer: as JSON, or by the function people.
func (c *cli) show(answer any, people func(io.Writer) error) error {
	if c.format == formatJSON {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(answer)
	}
	return people(c.out)
}

// say writes a line for people.
func (c *cli) say(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format, args...)
	return err
}

// table is rows of cells under a heading.
type table struct {
	heading []string
	rows    [][]string
}

// add adds a row, in which characters that a terminal would obey rather than show
// are made visible.
func (t *table) add(cells ...string) {
	for n, cell := range cells {
		cells[n] = visible(cell)
	}
	t.rows = append(t.rows, cells)
}

// remarks are the columns that a table without rows does not have: they are there
// only where there is something to say.
var remarks = []string{"REASON", "TROUBLE"}

// write aligns the columns. A column that is empty in every row is left out.
func (t *table) write(w io.Writer) error {
	var text bytes.Buffer
	aligned := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{t.heading}, t.rows...) {
		var cells []string
		for n, cell := range row {
			if t.filled(n) {
				cells = append(cells, cell)
			}
		}
		_, _ = fmt.Fprintln(aligned, strings.Join(cells, "\t")) // a buffer takes everything
	}
	_ = aligned.Flush()
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) filled(column int) bool {
	for _, row := range t.rows {
		if row[column] != "" {
			return true
		}
	}
	return len(t.rows) == 0 && !slices.Contains(remarks, t.heading[column])
}

// age writes a span of time for people: its two largest units.
func age(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", d/day, int(d.Hours())%24)
}

// oneLine keeps a cell of a table on its line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// visible writes characters that cannot be seen, or that a terminal obeys, as Go
// and JSON escape them.
func visible(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			out.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// forPerson returns a writer for text that an engine or a model has made. In a terminal the
// characters are shown that the terminal would obey; elsewhere the text stays as it is.
func forPerson(out io.Writer) io.Writer {
	if isTerminal(out) {
		return &shown{to: out}
	}
	return out
}

// shown writes text with the characters made visible that a terminal would obey, but for
// those that end lines and columns.
type shown struct {
	to  io.Writer
	cut []byte // the beginning of a character whose rest is to come
}

func (s *shown) Write(text []byte) (int, error) {
	var out strings.Builder
	left := append(s.cut, text...)
	for utf8.FullRune(left) {
		r, size := utf8.DecodeRune(left)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, left[0])
		case unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r':
			out.WriteString(visible(string(r)))
		default:
			out.WriteRune(r)
		}
		left = left[size:]
	}
	s.cut = slices.Clone(left)
	if _, err := io.WriteString(s.to, out.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
