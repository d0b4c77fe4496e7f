package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// The forms of an answer.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// formatFlag adds -o.
func (c *cli) formatFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.format, "output", "o", formatTable, "form of the answer, `table|json`: for people, or as the API has it")
	complete(cmd, "output", formatTable, formatJSON)
}

// checkFormat refuses a form that does not exist, before anything is asked for.
func (c *cli) checkFormat() error {
	if c.format != "" && c.format != formatTable && c.format != formatJSON {
		return usagef("there is no output form %q: it is table or json", c.format)
	}
	return nil
}

// show writes an answer: as JSON, or in the words of people.
func (c *cli) show(answer any, people func(io.Writer) error) error {
	if c.format == formatJSON {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(answer)
	}
	return people(c.out)
}

// table is rows of cells under a heading.
type table struct {
	heading []string
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

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
	return len(t.rows) == 0
}

// gib writes a number of bytes for people.
func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

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
