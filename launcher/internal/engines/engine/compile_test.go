package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func compilesOf(t *testing.T, args ...string) string {
	t.Helper()
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Args: append([]string{"m"}, args...)})
	require.NoError(t, err)
	return p.Compiles
}

func TestWhetherAnEngineCompilesIsReadFromItsArguments(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		compiles bool
	}{
		"nothing is said":                 {nil, true},
		"eager":                           {[]string{"--enforce-eager"}, false},
		"eager, and then not":             {[]string{"--enforce_eager", "--no-enforce-eager"}, true},
		"-O0":                             {[]string{"-O0"}, false},
		"-O3":                             {[]string{"-O3"}, true},
		"-O0 overruled":                   {[]string{"-O0", "-O2"}, true},
		"the level spelt out":             {[]string{"--optimization-level", "0"}, false},
		"mode 0 as JSON":                  {[]string{"--compilation-config", `{"mode": 0}`}, false},
		"mode NONE as JSON":               {[]string{"--compilation-config", `{"mode": "NONE", "custom_ops": ["all"]}`}, false},
		"mode 3 as JSON":                  {[]string{"--compilation-config", `{"mode": 3}`}, true},
		"level 0, as it was called":       {[]string{"--compilation-config", `{"level": 0}`}, false},
		"a mode as a key":                 {[]string{"--compilation-config.mode", "0"}, false},
		"a mode as a key, behind =":       {[]string{"--compilation-config.mode=0"}, false},
		"another key with a nought":       {[]string{"--compilation-config.max_cudagraph_capture_size", "0"}, true},
		"a configuration without a mode":  {[]string{"--compilation-config", `{"custom_ops": ["all"]}`}, true},
		"a configuration that is no JSON": {[]string{"--compilation-config", `{`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.compiles, compilesOf(t, c.args...) != "")
		})
	}
}

func TestTwoEnginesCompileTheSameUnlessAnArgumentMayMakeADifference(t *testing.T) {
	same := compilesOf(t, "--max-model-len", "256")
	assert.Equal(t, same, compilesOf(t, "--served-model-name", "other", "--max-model-len", "256", "--api-key", "k", "--port", "8000"))
	assert.NotEqual(t, same, compilesOf(t, "--max-model-len", "512"))
	assert.NotEqual(t, same, compilesOf(t, "--max-model-len", "256", "-tp", "2"))
	assert.NotContains(t, compilesOf(t, "--api-key", "sesame"), "sesame")
}
