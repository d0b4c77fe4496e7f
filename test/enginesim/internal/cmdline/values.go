package cmdline

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check refuses values that are not of the option's type.
func (o *Option) check(values []string) error {
	for _, v := range values {
		label := strings.Join(o.Names, "/")
		switch o.Type {
		case "int":
			if _, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err != nil {
				return usage("argument %s: invalid int value: '%s'", label, v)
			}
		case "float":
			if _, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err != nil {
				return usage("argument %s: invalid float value: '%s'", label, v)
			}
		case "human":
			if m := humanPattern.FindStringSubmatch(v); m != nil && strings.Contains(m[1], ".") && strings.ContainsAny(m[2], "KMGT") {
				return usage("argument %s: Decimals are not allowed with binary suffixes like %s. Did you mean to use %s%s instead?", label, m[2], m[1], strings.ToLower(m[2]))
			}
			if _, ok := HumanInt(v); !ok {
				return usage("argument %s: invalid human_readable_int value: '%s'", label, v)
			}
		case "json":
			if !json.Valid([]byte(v)) {
				return usage("argument %s: invalid loads value: '%s'", label, v)
			}
		}
		if o.Choices != nil && !slices.Contains(o.Choices, v) {
			quoted := make([]string, len(o.Choices))
			for i, c := range o.Choices {
				quoted[i] = "'" + c + "'"
			}
			return usage("argument %s: invalid choice: '%s' (choose from %s)", label, v, strings.Join(quoted, ", "))
		}
	}
	return nil
}

var humanPattern = regexp.MustCompile(`^(\d+(?:\.\d+)?)([kKmMgGtT])$`)

// HumanInt reads numbers such as "4096", "1k" (1000), "1K" (1024), "auto" (-1).
func HumanInt(v string) (int64, bool) {
	v = strings.TrimSpace(v)
	if strings.EqualFold(v, "auto") {
		return -1, true
	}
	m := humanPattern.FindStringSubmatch(v)
	if m == nil {
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	power := strings.Index("kmgt", strings.ToLower(m[2])) + 1
	if strings.ContainsAny(m[2], "KMGT") {
		n, err := strconv.ParseInt(m[1], 10, 64)
		return n << (10 * power), err == nil
	}
	f, err := strconv.ParseFloat(m[1], 64)
	for range power {
		f *= 1000
	}
	return int64(f), err == nil
}

// Has says whether dest was given.
func (a *Args) Has(dest string) bool { return len(a.Values[dest]) > 0 }

// Dests lists the options that were given, sorted.
func (a *Args) Dests() []string { return slices.Sorted(maps.Keys(a.Values)) }

// Str is the value of dest, or otherwise.
func (a *Args) Str(dest, otherwise string) string {
	if v := a.Values[dest]; len(v) > 0 {
		return v[0]
	}
	return otherwise
}

// Int is the value of dest, or otherwise.
func (a *Args) Int(dest string, otherwise int) int {
	if n, ok := HumanInt(a.Str(dest, "")); ok {
		return int(n)
	}
	return otherwise
}

// Float is the value of dest, or otherwise.
func (a *Args) Float(dest string, otherwise float64) float64 {
	if f, err := strconv.ParseFloat(strings.TrimSpace(a.Str(dest, "")), 64); err == nil {
		return f
	}
	return otherwise
}

// Bool is the value of dest, false when it was not given.
func (a *Args) Bool(dest string) bool { return a.Str(dest, "false") == "true" }
