package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// secrets are values of one create call that must not be seen again. They are
// kept in memory alone: of an adopted instance they are not known.
type secrets struct{ values []string } // the longest first

// maxEnvFile bounds a file that holds the value of a variable, in bytes.
const maxEnvFile = 64 << 10

// resolveEnv gives the environment of a create call with files read, and the
// secrets in it.
func (s *Supervisor) resolveEnv(spec launcherapi.InstanceSpec) (map[string]string, secrets, error) {
	env := make(map[string]string, len(spec.EnvVars))
	var found secrets
	for name, v := range spec.EnvVars {
		where := "body.env_vars." + name
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, found, launcher.Invalidf(where, "%q cannot be the name of an environment variable", name)
		}
		value := v.Value
		if v.FromFile != "" {
			read, err := s.readEnvFile(v.FromFile)
			if err != nil {
				return nil, found, launcher.Invalidf(where, "cannot take %s from a file: %w", name, err)
			}
			value = read
		}
		if strings.ContainsRune(value, 0) {
			return nil, found, launcher.Invalidf(where, "the value of %s holds a NUL byte", name)
		}
		if v.FromFile != "" || isSecretName(name) {
			found.add(value)
		}
		env[name] = value
	}
	return env, found, nil
}

func (s *Supervisor) readEnvFile(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s is not an absolute path", path)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("cannot find it: %w", err)
	}
	if !s.allowed(target) {
		return "", fmt.Errorf("%s is in none of the folders of env_file_dirs (%s)", path, strings.Join(s.opts.EnvFileDirs, ", "))
	}
	f, err := os.OpenFile(target, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would hold the launcher for ever
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	if len(data) > maxEnvFile {
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxEnvFile)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

func (s *Supervisor) allowed(target string) bool {
	for _, dir := range s.opts.EnvFileDirs {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(dir, target); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// hasHidden tells whether an instance was given secrets, by what is shown of it.
func hasHidden(spec launcherapi.InstanceSpec) bool {
	shown := marshal(spec)
	return slices.ContainsFunc([]string{launcherapi.Redacted, `"from_file":`, "--config"}, func(trace string) bool { return strings.Contains(shown, trace) })
}

// add keeps a secret, and each longer line of one that has several: a log is
// told line by line.
func (x *secrets) add(value string) {
	x.keep(value)
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= shortestLine {
				x.keep(line)
			}
		}
	}
}

// shortestLine is what a line of a secret has at least to be one itself: its
// braces are none.
const shortestLine = 8

func (x *secrets) keep(value string) {
	for _, v := range []string{value, withinJSON(value)} {
		if hideable(v) && !slices.Contains(x.values, v) {
			x.values = append(x.values, v)
		}
	}
	slices.SortStableFunc(x.values, func(a, b string) int { return len(b) - len(a) })
}

// hideable tells whether a secret may be looked for anywhere. Short ones, and
// words that stand for none, would blot out half of every line; they are hidden
// under their names alone.
func hideable(value string) bool {
	return len(value) >= 4 && !slices.Contains([]string{"true", "false", "none", "null", "auto", "empty", "default"}, strings.ToLower(value))
}

// withinJSON is how a text stands between the quotes of JSON.
func withinJSON(text string) string {
	quoted := marshal(text)
	return quoted[1 : len(quoted)-1]
}

// find finds the secrets of a spec, and those of its --config file, which is
// given as arguments. What is redacted then shows none of them, also where it
// stands before its name.
func (x *secrets) find(spec launcherapi.InstanceSpec, config []string) {
	x.redact(spec)
	x.redactArgs(config)
}

// redact gives the spec without its secrets: values of variables, flags and keys
// of JSON whose names say so, and the same values wherever else they stand.
func (x *secrets) redact(spec launcherapi.InstanceSpec) launcherapi.InstanceSpec {
	if spec.EnvVars != nil {
		shown := make(map[string]launcherapi.EnvValue, len(spec.EnvVars))
		for name, v := range spec.EnvVars {
			if v.FromFile == "" && isSecretName(name) {
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
			shown[name] = x.hide(value)
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

// hide hides the secrets in a text.
func (x *secrets) hide(text string) string {
	pairs := make([]string, 0, 2*len(x.values))
	for _, v := range x.values {
		pairs = append(pairs, v, launcherapi.Redacted)
	}
	return strings.NewReplacer(pairs...).Replace(text) // the longest first
}

func (x *secrets) hideIn(lines []string) []string {
	shown := make([]string, len(lines))
	for n, line := range lines {
		shown[n] = x.hide(line)
	}
	return shown
}

// inAddress finds the password in http://user:password@host.
var inAddress = regexp.MustCompile(`://[^/?#@\s:]*:([^/?#@\s]+)@`)

// redactText hides secrets in a text that may be JSON, and may hold addresses.
func (x *secrets) redactText(text string) string {
	for _, found := range inAddress.FindAllStringSubmatch(text, -1) {
		if found[1] != launcherapi.Redacted {
			x.add(found[1])
		}
	}
	if text == "" || text[0] != '{' && text[0] != '[' {
		return x.hide(text)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil || decoder.More() {
		return x.hide(text)
	}
	if tree, found := x.redactTree(tree, false); found {
		text = marshal(tree)
	}
	return x.hide(text)
}

// redactTree hides what stands in JSON under names of secrets; under tells that
// this does. found tells whether there was something.
func (x *secrets) redactTree(tree any, under bool) (shown any, found bool) {
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			inner, is := x.redactTree(value, under || isSecretName(key))
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

// marshal is JSON without the escapes that are for HTML.
func marshal(v any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // it was JSON before
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// redactArgs hides the values of flags whose names say that they are secrets,
// and all secrets that stand elsewhere.
func (x *secrets) redactArgs(args []string) []string {
	shown := make([]string, len(args))
	left := 0 // how many of the words that follow are values of such a flag
	for n, arg := range args {
		flag, isFlag := engine.ReadFlag(arg)
		name, value, _ := strings.Cut(arg, "=")
		secret := isFlag && slices.ContainsFunc(flag.Names, isSecretName)
		switch {
		case secret && flag.Inline:
			x.add(value)
			shown[n] = name + "=" + launcherapi.Redacted
		case !isFlag && left > 0:
			x.add(arg)
			shown[n] = launcherapi.Redacted
		case strings.HasPrefix(value, "{"), strings.HasPrefix(value, "["):
			shown[n] = x.hide(name) + "=" + x.redactText(value)
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

// redactOptions gives a string of shell words without its secrets. They are
// looked for as the engine sees them: quotes could hide a flag, or break a value
// up. Where there are none the string stays as it was written.
func (x *secrets) redactOptions(options string) string {
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

// quoted gives a word as it may stand in options.
func quoted(word string) string {
	if words, err := launcherapi.SplitOptions(word); err == nil && len(words) == 1 && words[0] == word {
		return word
	}
	if !strings.Contains(word, "'") {
		return "'" + word + "'"
	}
	return shellquote.Join(word)
}
