package secrets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		`m --x '{"api_key": "a"}'`:                     `m --x {"api_key":"[redacted]"}`, // short ones where they stand
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
		x, spec := &Set{}, launcherapi.InstanceSpec{Options: &in}
		x.Find(spec, nil)
		assert.Equal(t, want, *x.Redact(spec).Options, in)
	}
}

func TestOptionsAreRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"m --api-key sk-1 --port 80":       "m --api-key [redacted] --port 80",
		"m --api-key=sk-1":                 "m --api-key=[redacted]",
		`m --api-key "a b" x`:              "m --api-key [redacted] [redacted]", // it takes several
		`m "--api-key" sk-1`:               "m --api-key [redacted]",
		`m "--api-key=sk-1"`:               "m --api-key=[redacted]",
		`m --api-'key' sk-1`:               "m --api-key [redacted]",
		`m --api-key s"k-"1 'x y'`:         "m --api-key [redacted] [redacted]",
		`m --api-key=-sk-1`:                "m --api-key=[redacted]",
		`m --api-key sk\ -1 --seed 'a "b'`: `m --api-key [redacted] --seed 'a "b'`,
		`x-sk-123 --api-key sk-123`:        "x-[redacted] --api-key [redacted]",
		`m --hf-token 'a b'`:               "m --hf-token [redacted]",
		"m --max-num-batched-tokens 10":    "m --max-num-batched-tokens 10",
		"m --tokenizer-mode auto":          "m --tokenizer-mode auto",
		`m --hf-overrides '{"a": "b"}'`:    `m --hf-overrides '{"a": "b"}'`,
	} {
		x, spec := &Set{}, launcherapi.InstanceSpec{Options: &in}
		x.Find(spec, nil)
		assert.Equal(t, want, *x.Redact(spec).Options)
	}
}

func TestAPasswordWithinAnAddressIsHidden(t *testing.T) {
	x := &Set{}
	shown := x.Redact(launcherapi.InstanceSpec{
		Args: []string{"m", "--otlp-traces-endpoint", "http://me:pass-word-1@collector:4317/v1"},
		EnvVars: map[string]launcherapi.EnvValue{
			"HTTPS_PROXY":                {Value: "http://me:pass-word-2@proxy:3128"},
			"OTEL_EXPORTER_OTLP_HEADERS": {Value: "x-auth=pass-word-3"},
		},
	})
	assert.Equal(t, "http://me:[redacted]@collector:4317/v1", shown.Args[2])
	assert.Equal(t, "http://me:[redacted]@proxy:3128", shown.EnvVars["HTTPS_PROXY"].Value)
	assert.Equal(t, "[redacted]", shown.EnvVars["OTEL_EXPORTER_OTLP_HEADERS"].Value)
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
		x := &Set{}
		if flag != "--api-key" && flag != "--hf-tok" && flag != "--sim-password" {
			x.add(secret)
		}
		spec := launcherapi.InstanceSpec{Args: args, Annotations: map[string]string{"a": secret}}
		x.Find(spec, nil)
		shown := x.Redact(spec)
		if flag == secret || strings.Contains(flag, secret) || strings.Contains(rest, secret) {
			return // a part of what is hidden may be a part of what stays
		}
		for _, arg := range append(shown.Args[2:], shown.Annotations["a"]) {
			assert.NotContains(t, strings.ReplaceAll(arg, launcherapi.Redacted, ""), secret)
		}
	})
}
