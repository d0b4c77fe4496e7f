package supervisor

import (
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
	"hotseat.dev/hotseat/spec/launcherapi"
)

// secrets are values of one create call that must not be seen again. They are
// kept in memory alone: of an adopted instance they are not known.
type secrets struct{ values []string } // the longest first

// secretName matches names of variables and flags whose values are secrets.
var secretName = regexp.MustCompile(`(?i)(token|secret|passw|api[_-]?key|credential|private[_-]?key|access[_-]?key|authorization)`)

// notSecret matches names that only look so: their values are numbers or
// settings, such as --max-num-batched-tokens or TOKENIZERS_PARALLELISM.
var notSecret = regexp.MustCompile(`(?i)(tokens|tokenizer|tokenise|token[_-](id|ids|pattern|length|size)|num[_-]token)`)

func isSecretName(name string) bool {
	return secretName.MatchString(name) && !notSecret.MatchString(name)
}

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

func (x *secrets) add(value string) {
	if value == "" || slices.Contains(x.values, value) {
		return
	}
	x.values = append(x.values, value)
	slices.SortFunc(x.values, func(a, b string) int { return len(b) - len(a) })
}

// redact gives the spec without its secrets: values of variables and flags
// whose names say so, and the same values wherever else they stand. Those of
// flags are kept among the secrets.
func (x *secrets) redact(spec launcherapi.InstanceSpec) launcherapi.InstanceSpec {
	if spec.EnvVars != nil {
		shown := make(map[string]launcherapi.EnvValue, len(spec.EnvVars))
		for name, v := range spec.EnvVars {
			if v.FromFile == "" && isSecretName(name) {
				v = launcherapi.EnvValue{Value: launcherapi.Redacted}
			}
			v.Value = x.hide(v.Value)
			shown[name] = v
		}
		spec.EnvVars = shown
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

func (x *secrets) hide(text string) string {
	for _, v := range x.values {
		if len(v) >= 4 { // shorter ones would blot out half of every line
			text = strings.ReplaceAll(text, v, launcherapi.Redacted)
		}
	}
	return text
}

func (x *secrets) hideIn(lines []string) []string {
	shown := make([]string, len(lines))
	for n, line := range lines {
		shown[n] = x.hide(line)
	}
	return shown
}

func (x *secrets) redactArgs(args []string) []string {
	shown := make([]string, len(args))
	hideNext := false
	for n, arg := range args {
		flag, value, joined := strings.Cut(arg, "=")
		isFlag := strings.HasPrefix(arg, "-")
		switch {
		case hideNext && !isFlag:
			x.add(arg)
			shown[n] = launcherapi.Redacted
			continue // --api-key takes several values
		case isFlag && joined && isSecretName(flag):
			x.add(value)
			shown[n] = flag + "=" + launcherapi.Redacted
		default:
			shown[n] = x.hide(arg)
		}
		hideNext = isFlag && isSecretName(flag)
	}
	return shown
}

// redactOptions gives a string of shell words without its secrets. They are
// looked for as the engine sees them: quotes could hide a flag, or break a value
// up. Where there are none the string stays as it was written.
func (x *secrets) redactOptions(options string) string {
	words, err := shellquote.Split(options)
	if err != nil {
		return launcherapi.Redacted // the engine adapter has refused it
	}
	x.redactArgs(words) // finds them all, so that none stands before its flag
	shown := x.redactArgs(words)
	if slices.Equal(shown, words) {
		return options
	}
	for n, word := range shown {
		if bare := strings.ReplaceAll(word, launcherapi.Redacted, "x"); shellquote.Join(bare) != bare {
			shown[n] = shellquote.Join(word)
		}
	}
	return strings.Join(shown, " ")
}
