package supervisor

import "fmt"

// How much of the end of a log is shown with a failure, and how much is searched for
// its cause. vLLM logs the root of a failure some hundred lines before the end.
const (
	shownLines    = 30
	searchedLines = 400
	searchedBytes = 128 << 10
)

func (s *Supervisor) tail(name string) []string { return lastOf(s.longTail(name), shownLines) }

func lastOf(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

func (s *Supervisor) longTail(name string) []string {
	lines, err := bounded(s, "read the log "+name, func() ([]string, error) { return s.opts.Logs.Tail(name, searchedLines, searchedBytes) }, nil)
	if err != nil {
		return []string{fmt.Sprintf("hotseat: %v", err)}
	}
	return lines
}
