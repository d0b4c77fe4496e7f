package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSecretsInOptionsAreFoundHoweverTheyAreWritten(t *testing.T) {
	for in, want := range map[string]string{
		"m --hf-tok hf_123":                               "m --hf-tok [redacted]",
		"m --hf-t=hf_123":                                 "m --hf-t=[redacted]",
		"m --hf_token hf_123":                             "m --hf_token [redacted]",
		"--hf-token hf_123 m":                             "--hf-token [redacted] m", // it takes one
		"--api-key k1 k2 --seed 1 m":                      "--api-key [redacted] [redacted] --seed 1 m",
		"m --sim-token-time 50ms":                         "m --sim-token-time 50ms",
		"m --allow-credentials x":                         "m --allow-credentials x",
		"m --model-loader-extra-config.api_key k-1 --x y": "m --model-loader-extra-config.api_key [redacted] --x y",
		"m --x.y.secret=k-1":                              "m --x.y.secret=[redacted]",

		`m --x '{"a": {"api_key": "k-1"}, "n": 1.50}'`: `m --x {"a":{"api_key":"[redacted]"},"n":1.50}`,
		`m --x {"api_key":"k-1"}`:                      `m --x {"api_key":"[redacted]"}`,
		`m --x={"api_key":"k-1"}`:                      `m --x={"api_key":"[redacted]"}`,
		`m --x '{"a b": {"api_key": "k-1"}}'`:          `m --x '{"a b":{"api_key":"[redacted]"}}'`,
		`m --x '[{"password": 12345}]'`:                `m --x [{"password":"[redacted]"}]`,
		`m --x '{"credentials": {"user": ["u-12"]}}'`:  `m --x {"credentials":{"user":["[redacted]"]}}`,
		`m --x '{"secret": true, "token": null}'`:      `m --x '{"secret": true, "token": null}'`,
		`m --x '{"key": "a"}'`:                         `m --x {"key":"[redacted]"}`, // short ones where they stand
		`m --x '{"max_tokens": "<5>"}'`:                `m --x '{"max_tokens": "<5>"}'`,
		`m --x '{"a": "k-1 & <o", "api_key": "k-1x"}'`: `m --x '{"a":"k-1 & <o","api_key":"[redacted]"}'`,

		"m --x k-1234 --api-key k-1234":         "m --x [redacted] --api-key [redacted]",
		`m --x {"b":"k-1234"} --api-key k-1234`: `m --x {"b":"[redacted]"} --api-key [redacted]`,
		`m --x 'x k"12 y' --api-key 'k"12'`:     "m --x 'x [redacted] y' --api-key [redacted]",
		`m --x {"b":"k\"12"} --api-key 'k"12'`:  `m --x {"b":"[redacted]"} --api-key [redacted]`,
		"m --host none --api-key none":          "m --host none --api-key [redacted]", // no secret, but where it stands
		"m --a k-1234 k-2345":                   "m --a [redacted] [redacted]",        // it may be --api-key
		"m --api-key":                           "m --api-key",
		"m --port abc --served-model-name api":  "m --port abc --served-model-name api",
	} {
		x, spec := &secrets{}, launcherapi.InstanceSpec{Options: &in}
		x.find(spec, nil)
		assert.Equal(t, want, *x.redact(spec).Options, in)
	}
}

func TestASecretIsHiddenWhereverElseItStands(t *testing.T) {
	vault := t.TempDir()
	file := filepath.Join(vault, "f")
	require.NoError(t, os.WriteFile(file, []byte("first-line\n\nsecond-line\n"), 0o600))
	config := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(config, []byte("api-key: sk-config\nspeculative-config: {x: {auth_token: sk-nested}}\n"), 0o600))
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-flag", "--x=sk-env", "--y", "sk-flag!", "--config", config)
		s.EnvVars = map[string]launcherapi.EnvValue{
			"DB_PASS": {Value: "sk-env"}, "A_COPY": {Value: "<sk-flag>"}, "PLAIN": {Value: "in plain sight"},
			"BLOB": {Value: `{"api_key": "sk-blob", "n": 1}`}, "ODD_NAME": {FromFile: file}, "HALF": {Value: "x second-line x"},
			"FROM_CONFIG": {Value: "sk-config sk-nested"}, "SOME_TOKEN": {Value: "true"},
		}
		s.Annotations = map[string]string{"note": "key sk-flag, pass sk-env, blob sk-blob", launcherapi.AnnotationPinned: "true"}
		view, err := r.Create(Create{ID: "a", Spec: s})
		require.NoError(t, err)
		r.runner.tree("a").exitCode(1)
		synctest.Wait()
		failed, err := r.Get("a")
		require.NoError(t, err)
		shown, err := json.Marshal([]any{view, failed})
		require.NoError(t, err)
		written, err := json.Marshal(remembered(t, r))
		require.NoError(t, err)
		for _, text := range []string{string(shown), string(written)} {
			for _, secret := range []string{"sk-", "first-line", "second-line"} {
				assert.NotContains(t, text, secret)
			}
			assert.Contains(t, text, "in plain sight")
			assert.Contains(t, text, file)
		}
		assert.Equal(t, "true", failed.Annotations[launcherapi.AnnotationPinned])
		assert.Contains(t, failed.LastLogLines[0], "non-default args")
	}, func(o *Options) {
		o.EnvFileDirs = []string{vault}
		o.Logs = tellingLogs{fakeLogs{dir: vault}, []string{"non-default args: sk-flag first-line", "sk-config second-line sk-blob sk-nested"}}
	})
}

// tellingLogs is a log of an engine that repeats what it was given.
type tellingLogs struct {
	fakeLogs
	lines []string
}

func (l tellingLogs) Tail(string, int, int) ([]string, error) { return l.lines, nil }

func TestARefusalTellsNoSecret(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-flag", "--port", "sk-flag", "--seed")
		_, err := r.Create(Create{ID: "a", Spec: s})
		require.ErrorContains(t, err, "--port")
		assert.NotContains(t, err.Error(), "sk-flag")
	})
}

func FuzzASecretIsNotShown(f *testing.F) {
	f.Add("sk-1234", "--api-key", "m --x y")
	f.Add(`a"b'c d\`, "--hf-tok", `m --x '{"y": 1}' [1]`)
	f.Add("{\"a\":1}", "--sim-password", "m")
	f.Add("--port", "--api-key", "m")
	f.Fuzz(func(t *testing.T, secret, flag, rest string) {
		if len(secret) < 4 || strings.HasPrefix(secret, "-") || strings.ContainsRune(secret, 0) || strings.Contains(launcherapi.Redacted, secret) || !hideable(secret) {
			return
		}
		args := []string{rest, flag, secret, "x" + secret}
		x := &secrets{}
		if flag != "--api-key" && flag != "--hf-tok" && flag != "--sim-password" {
			x.add(secret)
		}
		spec := launcherapi.InstanceSpec{Args: args, Annotations: map[string]string{"a": secret}}
		x.find(spec, nil)
		shown := x.redact(spec)
		if flag == secret || strings.Contains(flag, secret) || strings.Contains(rest, secret) {
			return // a part of what is hidden may be a part of what stays
		}
		for _, arg := range append(shown.Args[2:], shown.Annotations["a"]) {
			assert.NotContains(t, strings.ReplaceAll(arg, launcherapi.Redacted, ""), secret)
		}
	})
}
