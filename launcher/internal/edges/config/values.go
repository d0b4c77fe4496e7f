package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// value reads texts into a field of a Config.
type value struct {
	kind string // for the flags' help
	want string // what would be right, after "must be"
	file yamlType
	// set takes one text, or for a list any number of texts.
	set  func(texts []string) error
	list bool
}

// yamlType is the set of types that a value may have in the file.
type yamlType int

const (
	yamlString yamlType = 1 << iota
	yamlNumber
	yamlBool
	yamlList
	yamlNull
	yamlMapping
	yamlOther // anchors, aliases and tags
)

func (t yamlType) String() string {
	return map[yamlType]string{
		yamlString: "a string", yamlNumber: "a number", yamlBool: "true or false",
		yamlList: "a list", yamlNull: "nothing", yamlMapping: "a mapping",
	}[t]
}

// scalar is a value of one text.
func scalar(kind, want string, file yamlType, set func(text string) error) value {
	return value{kind: kind, want: want, file: file, set: func(texts []string) error {
		if texts[0] == "" {
			return fmt.Errorf("must be %s, not empty", want)
		}
		return set(texts[0])
	}}
}

// optional lets the field be empty, too.
func optional(p *string, of func(*string) value) value {
	v := of(p)
	set := v.set
	v.set = func(texts []string) error {
		if texts[0] == "" {
			*p = ""
			return nil
		}
		return set(texts)
	}
	return v
}

func text(p *string) value {
	return scalar("string", "a string", yamlString, func(s string) error { *p = s; return nil })
}

func path(p *string) value {
	return scalar("path", "a path", yamlString, func(s string) (err error) {
		*p, err = filepath.Abs(s)
		return err
	})
}

// paths is a list of paths, which commas separate in flags and variables.
func paths(p *[]string) value {
	return value{kind: "paths", want: "a list of paths", file: yamlString | yamlList, list: true, set: func(texts []string) error {
		*p = nil
		for _, t := range texts {
			if t == "" {
				return errors.New("a path in it is empty")
			}
			abs, err := filepath.Abs(t)
			if err != nil {
				return err
			}
			*p = append(*p, abs)
		}
		return nil
	}}
}

// words is a list of words or numbers, which commas separate in flags and variables.
func words(p *[]string) value {
	return value{kind: "names", want: "a list of names or numbers", file: yamlString | yamlNumber | yamlList, list: true, set: func(texts []string) error {
		*p = nil
		for _, t := range texts {
			if t = strings.TrimSpace(t); t == "" {
				return errors.New("a name in it is empty")
			}
			*p = append(*p, t)
		}
		return nil
	}}
}

// programs is a list of schemes with the programs that are their sources.
func programs(p *[]string) value {
	return value{kind: "scheme=path", want: "a list of schemes with programs", file: yamlString | yamlList, list: true, set: func(texts []string) (err error) {
		*p, err = Programs(texts)
		return err
	}}
}

// Programs checks schemes with the programs that are their sources, as SCHEME=PATH.
func Programs(texts []string) (all []string, err error) {
	seen := map[string]bool{}
	for _, t := range texts {
		scheme, path, err := fetchapi.ParseProgram(t)
		if err != nil {
			return nil, err
		}
		if seen[scheme] {
			return nil, fmt.Errorf("names two programs for the scheme %s", scheme)
		}
		seen[scheme] = true
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		all = append(all, scheme+"="+path)
	}
	return all, nil
}

// claims is a list of volumes by name and folder, which commas separate in flags and
// variables.
func claims(p *map[string]string) value {
	return value{kind: "claims", want: "a list as CLAIM=DIR", file: yamlString | yamlList, list: true, set: func(texts []string) error {
		*p = nil
		all := map[string]string{}
		for _, t := range texts {
			name, dir, ok := strings.Cut(t, "=")
			if !ok || name == "" || strings.ContainsAny(name, "/@?#:") || dir == "" {
				return fmt.Errorf("must be as CLAIM=DIR, not %q", t)
			}
			if all[name] != "" {
				return fmt.Errorf("names %s twice", name)
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			all[name] = abs
		}
		if len(all) > 0 {
			*p = all
		}
		return nil
	}}
}

func boolean(p *bool) value {
	return scalar("bool", "true or false", yamlBool, func(s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("must be true or false, not %q", s)
		}
		*p = b
		return nil
	})
}

func choice(p *string, of ...string) value {
	want := "one of " + strings.Join(of, ", ")
	return scalar(strings.Join(of, "|"), want, yamlString, func(s string) error {
		if !slices.Contains(of, s) {
			return fmt.Errorf("must be %s, not %q", want, s)
		}
		*p = s
		return nil
	})
}

func level(p *slog.Level) value {
	names := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	var name string
	v := choice(&name, "debug", "info", "warn", "error")
	set := v.set
	v.set = func(texts []string) error {
		err := set(texts)
		*p = names[name]
		return err
	}
	return v
}

func number(p *int, least int) value {
	want := "a whole number"
	return scalar("int", want, yamlNumber, func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("must be %s, not %q", want, s)
		}
		if n < least {
			return fmt.Errorf("must be at least %d, not %d", least, n)
		}
		*p = n
		return nil
	})
}

// duration is a span of time.
func duration[T ~int64](p *T) value {
	want := `a duration such as "1m30s" or a number of seconds`
	return scalar("duration", want, yamlString|yamlNumber, func(s string) error {
		d, err := launcherapi.ParseDuration(s)
		if err != nil {
			return err
		}
		*p = T(d)
		return nil
	})
}

// limit is how long something may take. 0 means the default, which was set first.
func limit(p *time.Duration) value {
	v := duration(p)
	set := v.set
	var standard time.Duration
	v.set = func(texts []string) error {
		if err := set(texts); err != nil {
			return err
		}
		if *p == 0 {
			*p = standard
		}
		standard = cmp.Or(standard, *p)
		return nil
	}
	return v
}

func size[T int64 | uint64](p *T) value {
	return scalar("bytes", wantBytes, yamlString|yamlNumber, func(s string) error {
		n, err := ParseBytes(s)
		if err != nil {
			return err
		}
		*p = T(n)
		return nil
	})
}

const wantBytes = `a number of bytes, or one with a unit such as "80GiB"`

// units are the units of IEC 80000-13 and, in powers of a thousand, those of the
// SI.
var units = map[string]float64{
	"": 1, "b": 1,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40, // as Kubernetes has them
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// ParseBytes reads a number of bytes such as "1024", "80GiB", "80Gi", "1.5 GB".
func ParseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "kmgtibKMGTIB ")
	unit := strings.ToLower(strings.TrimSpace(s[len(digits):]))
	factor, known := units[unit]
	if !known || strings.Trim(digits, "0123456789.") != "" {
		return 0, fmt.Errorf("must be %s, not %q", wantBytes, s)
	}
	if factor == 1 {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("must be %s, not %q", wantBytes, s)
		}
		return n, nil
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n*factor >= math.MaxInt64 {
		return 0, fmt.Errorf("must be %s, not %q", wantBytes, s)
	}
	return int64(n * factor), nil
}

func address(p *string) value {
	want := `an address such as "127.0.0.1:8001"`
	return scalar("host:port", want, yamlString, func(s string) error {
		_, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("must be %s, not %q", want, s)
		}
		*p = s
		return nil
	})
}

func host(p *string) value {
	want := `a host without a port, such as "127.0.0.1"`
	return scalar("host", want, yamlString, func(s string) error {
		if s == "" || net.ParseIP(s) == nil && strings.ContainsAny(s, ":/ []") {
			return fmt.Errorf("must be %s, not %q", want, s)
		}
		*p = s
		return nil
	})
}
