package decide

import (
	"fmt"
	"strings"
)

// Sections are the tables as spec/binding.md has them, by the lines that stand before and after
// them there.
func Sections() map[string]string {
	var requesters strings.Builder
	for _, t := range Tables {
		requesters.WriteString(t.markdown())
	}
	return map[string]string{"requesters": requesters.String(), "strays": "\n" + rowsOf(strays.rows())}
}

func (t *TableOf[V]) markdown() string {
	next := ""
	if t.Next != "" {
		next = " If no row holds: " + t.Next + "."
	}
	return fmt.Sprintf("\n### %s%s\n\n%s.%s\n\n%s", strings.ToUpper(t.Name[:1]), t.Name[1:], t.Sentence, next, rowsOf(t.rows()))
}

func rowsOf(rows []Row) string {
	var b strings.Builder
	b.WriteString("| row | when | step |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Name, r.Words, r.Do)
	}
	return b.String()
}
