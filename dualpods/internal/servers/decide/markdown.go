package decide

import (
	"fmt"
	"strings"
)

// Begin and End stand before and after the tables in spec/binding.md.
const (
	Begin = "<!-- tables of package decide: make generate -->\n"
	End   = "<!-- end of the tables -->\n"
)

// Markdown returns the tables as spec/binding.md has them.
func Markdown() string {
	var b strings.Builder
	for n := range Tables {
		t := &Tables[n]
		t.print(&b)
		if t.Else != nil && Tables[n+1].Else != t.Else { // the last one that passes on to it
			t.Else.print(&b)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

func (t *Table) print(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s%s\n\n%s.", strings.ToUpper(t.Name[:1]), t.Name[1:], t.Sentence)
	if t.Else != nil {
		fmt.Fprintf(b, " If no row holds: %s.", t.Else.Name)
	}
	b.WriteString("\n\n| row | when | step |\n|---|---|---|\n")
	for _, r := range t.Rows {
		fmt.Fprintf(b, "| %s | %s | %s |\n", r.Name, r.Words, r.Do)
	}
}
