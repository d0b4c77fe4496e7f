package decide

import (
	"fmt"
	"strings"
)

// Sections are the tables as spec/binding.md has them, by the lines that stand before and after
// them there.
func Sections() map[string]string {
	return map[string]string{"requesters": requesters(), "strays": "\n" + rowsOf(strays.Rows)}
}

// requesters returns the tables of requesters.
func requesters() string {
	var b strings.Builder
	for n := range Tables {
		t := &Tables[n]
		t.print(&b)
		if t.Else != nil && Tables[n+1].Else != t.Else { // the last one that passes on to it
			t.Else.print(&b)
		}
	}
	return b.String()
}

func (t *TableOf[V]) print(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s%s\n\n%s.", strings.ToUpper(t.Name[:1]), t.Name[1:], t.Sentence)
	if t.Else != nil {
		fmt.Fprintf(b, " If no row holds: %s.", t.Else.Name)
	}
	b.WriteString("\n\n" + rowsOf(t.Rows))
}

func rowsOf[V any](rows []RowOf[V]) string {
	var b strings.Builder
	b.WriteString("| row | when | step |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Name, r.Words, r.Do)
	}
	return b.String()
}
