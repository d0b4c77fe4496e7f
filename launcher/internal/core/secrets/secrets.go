// Package secrets finds the secrets of a create call, and hides them in views and logs of
// the instance. Secrets are values of variables, flags and JSON keys whose names say so
// ([IsName]), values that come from a file, and passwords in addresses. The package hides
// these values in any other place too.
package secrets

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Set holds the secrets of one instance, in memory alone. The zero value holds
// none. A Set belongs to one goroutine at a time.
type Set struct{ values []string } // the longest first

// Any reports, by the redacted spec of an instance, whether it was given secrets.
func Any(spec launcherapi.InstanceSpec) bool {
	shown := marshal(spec)
	return slices.ContainsFunc([]string{launcherapi.Redacted, `"from_file":`, "--config"}, func(trace string) bool { return strings.Contains(shown, trace) })
}

// Missing reports whether a redacted spec lacks a secret that it was given. A secret from a
// file can be read again.
func Missing(spec launcherapi.InstanceSpec) bool {
	return strings.Contains(marshal(spec), launcherapi.Redacted)
}

// add keeps a secret. If the secret has several lines, add also keeps each longer line,
// because logs are shown line by line.
func (x *Set) add(value string) {
	x.keep(value)
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= shortestLine {
				x.keep(line)
			}
		}
	}
}

// shortestLine is how many bytes a line of a secret needs to be hidden by itself:
// a line that is a brace alone is no secret.
const shortestLine = 8

func (x *Set) keep(value string) {
	for _, v := range []string{value, withinJSON(value)} {
		if hideable(v) && !slices.Contains(x.values, v) {
			x.values = append(x.values, v)
		}
	}
	slices.SortStableFunc(x.values, func(a, b string) int { return len(b) - len(a) })
}

// hideable reports whether a secret is hidden everywhere. Short values, and words such as
// true, would blot out half of every line, so they are hidden only under their names.
func hideable(value string) bool {
	return len(value) >= 4 && !slices.Contains([]string{"true", "false", "none", "null", "auto", "empty", "default"}, strings.ToLower(value))
}

// withinJSON escapes a text as between the quotes of JSON.
func withinJSON(text string) string {
	quoted := marshal(text)
	return quoted[1 : len(quoted)-1]
}

// Find finds the secrets of a spec and of its --config file, whose content the caller
// gives as arguments. After that, [Set.Redact] hides a secret even if it stands before its
// name.
func (x *Set) Find(spec launcherapi.InstanceSpec, config []string) {
	x.Redact(spec)
	x.redactArgs(config)
}

// FindInProcess finds the secrets of an instance again, in the arguments and the
// environment (KEY=VALUE) of its process; spec is the redacted spec of the
// instance.
func (x *Set) FindInProcess(spec launcherapi.InstanceSpec, args, env []string) {
	x.redactArgs(args)
	for name, v := range spec.EnvVars {
		for _, variable := range env {
			value, ok := strings.CutPrefix(variable, name+"=")
			switch {
			case !ok:
			case v.FromFile != "" || IsName(name):
				x.add(value)
			default:
				x.redactText(value)
			}
		}
	}
}

// Redact gives the spec without its secrets.
func (x *Set) Redact(spec launcherapi.InstanceSpec) launcherapi.InstanceSpec {
	if spec.EnvVars != nil {
		shown := make(map[string]launcherapi.EnvValue, len(spec.EnvVars))
		for name, v := range spec.EnvVars {
			if v.FromFile == "" && IsName(name) {
				x.add(v.Value)
				v = launcherapi.EnvValue{Value: launcherapi.Redacted}
			}
			v.Value = x.redactText(v.Value)
			shown[name] = v
		}
		spec.EnvVars = shown
	}
	if spec.Annotations != nil {
		shown := make(map[string]string, len(spec.Annotations))
		for name, value := range spec.Annotations {
			shown[name] = x.Hide(value)
		}
		spec.Annotations = shown
	}
	if spec.Options != nil {
		shown := x.redactOptions(*spec.Options)
		spec.Options = &shown
	}
	if spec.Args != nil {
		spec.Args = x.redactArgs(spec.Args)
	}
	return spec
}

// Hide hides the secrets in a text.
func (x *Set) Hide(text string) string {
	pairs := make([]string, 0, 2*len(x.values))
	for _, v := range x.values {
		pairs = append(pairs, v, launcherapi.Redacted)
	}
	return strings.NewReplacer(pairs...).Replace(text) // the longest first
}

// HideIn hides the secrets in lines of a text.
func (x *Set) HideIn(lines []string) []string {
	shown := make([]string, len(lines))
	for n, line := range lines {
		shown[n] = x.Hide(line)
	}
	return shown
}

// inAddress finds the password in http://user:password@host.
var inAddress = regexp.MustCompile(`://[^/?#@\s:]*:([^/?#@\s]+)@`)

// redactText hides secrets in a text that may be JSON, and may hold addresses.
func (x *Set) redactText(text string) string {
	for _, found := range inAddress.FindAllStringSubmatch(text, -1) {
		if found[1] != launcherapi.Redacted {
			x.add(found[1])
		}
	}
	if text == "" || text[0] != '{' && text[0] != '[' {
		return x.Hide(text)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil || decoder.More() {
		return x.Hide(text)
	}
	if tree, found := x.redactTree(tree, false); found {
		text = marshal(tree)
	}
	return x.Hide(text)
}

// redactTree hides the values in JSON that stand under names of secrets. If under is set,
// the whole tree stands under such a name. found reports whether there was such a value.
func (x *Set) redactTree(tree any, under bool) (shown any, found bool) {
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			inner, is := x.redactTree(value, under || IsName(key))
			v[key], found = inner, found || is
		}
	case []any:
		for n, value := range v {
			inner, is := x.redactTree(value, under)
			v[n], found = inner, found || is
		}
	case string:
		if under && v != "" {
			x.add(v)
			return launcherapi.Redacted, v != launcherapi.Redacted
		}
	case json.Number:
		if under {
			x.add(v.String())
			return launcherapi.Redacted, true
		}
	}
	return tree, found
}

// marshal gives JSON without the escapes for HTML.
func marshal(v any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // v was JSON before
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// redactArgs hides the values of flags whose names say that they are secrets, and
// all secrets in other places.
func (x *Set) redactArgs(args []string) []string {
	shown := make([]string, len(args))
	left := 0 // how many of the next words are values of a flag that is a secret
	for n, arg := range args {
		flag, isFlag := engine.ReadFlag(arg)
		name, value, _ := strings.Cut(arg, "=")
		secret := isFlag && slices.ContainsFunc(flag.Names, IsName)
		switch {
		case secret && flag.Inline:
			x.add(value)
			shown[n] = name + "=" + launcherapi.Redacted
		case !isFlag && left > 0:
			x.add(arg)
			shown[n] = launcherapi.Redacted
		case strings.HasPrefix(value, "{"), strings.HasPrefix(value, "["):
			shown[n] = x.Hide(name) + "=" + x.redactText(value)
		default:
			shown[n] = x.redactText(arg)
		}
		switch {
		case secret && !flag.Inline:
			left = flag.Values
		case isFlag:
			left = 0
		default:
			left--
		}
	}
	return shown
}

// redactOptions returns a string of shell words without its secrets. It searches the words
// as the engine sees them, because quotes could hide a flag or break a value up. A string
// without secrets stays as it was written.
func (x *Set) redactOptions(options string) string {
	words, err := launcherapi.SplitOptions(options)
	if err != nil {
		return launcherapi.Redacted // the engine adapter refuses it
	}
	shown := x.redactArgs(words)
	if slices.Equal(shown, words) {
		return options
	}
	for n, word := range shown {
		shown[n] = quoted(word)
	}
	return strings.Join(shown, " ")
}

// quoted quotes a word for options, if it needs quotes.
func quoted(word string) string {
	if words, err := launcherapi.SplitOptions(word); err == nil && len(words) == 1 && words[0] == word {
		return word
	}
	if !strings.Contains(word, "'") {
		return "'" + word + "'"
	}
	return shellquote.Join(word)
}
