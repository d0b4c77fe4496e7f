package launcherapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestADurationIsReadFromAStringOrANumberOfSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"1m30s"`: 90 * time.Second, `"0"`: 0, `90`: 90 * time.Second, `0.25`: 250 * time.Millisecond, `0`: 0, `"1.5h"`: 90 * time.Minute,
	} {
		var d launcherapi.Duration
		require.NoError(t, json.Unmarshal([]byte(text), &d), text)
		assert.Equal(t, want, d.D(), text)
	}
	for _, bad := range []string{`"-1s"`, `-1`, `"soon"`, `"90"`, `1e300`, `true`, `[]`, `{}`, `null`} {
		var d launcherapi.Duration
		assert.Error(t, json.Unmarshal([]byte(bad), &d), bad)
	}
	text, err := json.Marshal(launcherapi.Duration(90 * time.Second))
	require.NoError(t, err)
	assert.Equal(t, `"1m30s"`, string(text))
}

func TestADurationOfAFlagMayBeANumberOfSecondsToo(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m30s": 90 * time.Second, "90": 90 * time.Second, "0.25": 250 * time.Millisecond, "0": 0} {
		d, err := launcherapi.ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, d.D(), text)
	}
	for _, bad := range []string{"", "-1", "-1s", "NaN", "Inf", "1e300", "soon", "1m 30s"} {
		_, err := launcherapi.ParseDuration(bad)
		assert.Error(t, err, bad)
	}
}

func TestAVariableIsAStringOrNamesAFile(t *testing.T) {
	for text, want := range map[string]launcherapi.EnvValue{
		`"a"`: {Value: "a"}, `""`: {}, `{"from_file":"/run/key"}`: {FromFile: "/run/key"},
	} {
		var v launcherapi.EnvValue
		require.NoError(t, json.Unmarshal([]byte(text), &v), text)
		assert.Equal(t, want, v)
		back, err := json.Marshal(v)
		require.NoError(t, err)
		assert.JSONEq(t, text, string(back))
	}
	for _, bad := range []string{`1`, `null`, `[]`, `{}`, `{"from_file":""}`, `{"from_file":"/a","value":"b"}`, `{"value":"b"}`} {
		var v launcherapi.EnvValue
		assert.Error(t, json.Unmarshal([]byte(bad), &v), bad)
	}
}

func TestACodeHasAStatusThatLeadsBackToOneOfItsKind(t *testing.T) {
	for code, status := range map[string]int{
		launcherapi.CodeInvalid: 422, launcherapi.CodeUnauthorized: 401, launcherapi.CodeForbidden: 403, launcherapi.CodeNotFound: 404,
		launcherapi.CodeExists: 409, launcherapi.CodeConflict: 409, launcherapi.CodePortTaken: 409, launcherapi.CodeDoesNotFit: 409,
		launcherapi.CodeGone: 410, launcherapi.CodeTooLarge: 413, launcherapi.CodeRange: 416, launcherapi.CodeKeyReused: 422,
		launcherapi.CodeTooMany: 429, launcherapi.CodeInternal: 500, launcherapi.CodeNoAccess: 500, launcherapi.CodeEngineFailed: 502, launcherapi.CodeUnavailable: 503,
		launcherapi.CodeEngineTimeout: 504, launcherapi.CodeStorage: 507,
	} {
		assert.Equal(t, status, launcherapi.StatusOf(code), code)
		assert.Equal(t, status, launcherapi.StatusOf(launcherapi.CodeOf(status)), code)
	}
	assert.Equal(t, 500, launcherapi.StatusOf(""))
	assert.Equal(t, launcherapi.CodeConflict, launcherapi.CodeOf(409))
	assert.Equal(t, launcherapi.CodeInvalid, launcherapi.CodeOf(422))
	assert.Equal(t, launcherapi.CodeInvalid, launcherapi.CodeOf(418))
	assert.Equal(t, launcherapi.CodeInternal, launcherapi.CodeOf(500))
	assert.Equal(t, launcherapi.CodeInternal, launcherapi.CodeOf(599))
}
