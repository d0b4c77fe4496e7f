package inference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const mostNearest = 3

// UnknownModel says that no model has a name.
type UnknownModel struct {
	Name    string
	Off     string   // the profile that turned the name off; empty: none did
	Nearest []string // names that may have been meant, the nearest first
	All     []string
	Where   string // where it was looked for, as "in the namespace team"; empty: there is one place
}

// NewUnknownModel returns the error for a name that is not among all.
func NewUnknownModel(name string, all []string) *UnknownModel {
	return &UnknownModel{Name: name, Nearest: NearestNames(name, all), All: all}
}

func (e *UnknownModel) Error() string {
	text := fmt.Sprintf("there is no model %q", e.Name)
	switch {
	case e.Off != "":
		return fmt.Sprintf("the model %q is turned off by the profile %s", e.Name, e.Off)
	case len(e.All) == 0:
		return text + ": there are no models " + cmp.Or(e.Where, "here")
	case len(e.Nearest) == 0:
		return text + ". There are: " + FewNames(e.All)
	}
	return text + ": did you mean " + strings.Join(e.Nearest, " or ") + "? There are: " + FewNames(e.All)
}

// FewNames lists names, and counts those beyond the first ten.
func FewNames(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// NearestNames returns names of models that may have been meant, the nearest first. A name may be right
// without its organisation ("Qwen/") or its tag (":latest").
func NearestNames(asked string, names []string) []string {
	type ranked struct {
		name     string
		distance int
	}
	var near []ranked
	asked = strings.ToLower(asked)
	for _, name := range names {
		lower := strings.ToLower(name)
		if n, ok := distance(asked, lower); ok {
			near = append(near, ranked{name, n})
		} else if n, ok := distance(bare(asked), bare(lower)); ok {
			near = append(near, ranked{name, 1 + n})
		}
	}
	slices.SortStableFunc(near, func(a, b ranked) int { return cmp.Compare(a.distance, b.distance) })
	var all []string
	for _, r := range near[:min(len(near), mostNearest)] {
		all = append(all, r.name)
	}
	return all
}

// distance is how many bytes of a name are different, if they are few.
func distance(asked, name string) (n int, ok bool) {
	n = EditDistance(asked, name)
	return n, n <= max(min(2, len(asked)/2), len(asked)/3)
}

// bare takes the organisation and the tag from a name.
func bare(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
}

// EditDistance is how many bytes must be put in, taken out or changed to make b
// of a (Levenshtein's distance).
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
