package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMistakeOfAFlagIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no namespace":     {[]string{"--own-namespace=a"}, "--namespace is missing: give the namespace of the Models"},
		"no own namespace": {[]string{"--namespace=a"}, "--own-namespace is missing: give the namespace of this Pod"},
		"a word":           {[]string{"--namespace=a", "--own-namespace=a", "serve"}, `"serve" is no flag: there are only flags; see --help`},
		"a level":          {[]string{"--namespace=a", "--own-namespace=a", "--log-level=loud"}, `--log-level "loud" is none of debug, info, warn and error`},
		"half of TLS":      {[]string{"--namespace=a", "--own-namespace=a", "--tls-cert=tls.crt"}, "--tls-cert and --tls-key belong together: give both, or none of them"},
		"no connections":   {[]string{"--namespace=a", "--own-namespace=a", "--max-connections=0"}, "--max-connections 0 is too few: give 1 or more"},
		"an unknown flag":  {[]string{"--nmespace=a"}, "unknown flag: --nmespace"},
		"a host":           {[]string{"--host=a"}, "a must be formatted as key=value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args)
			require.ErrorContains(t, err, tt.want)
		})
	}
	s, err := parse([]string{"--help"})
	require.ErrorIs(t, err, errHelp)
	assert.Contains(t, s.help, "--host-domain domain")
}

func TestHostNameStandsForANamespace(t *testing.T) {
	s, err := parse([]string{"--namespace=rest", "--own-namespace=own", "--host=models.example.com=one", "--host=Other.example.com=two", "--host-domain=models.test"})
	require.NoError(t, err)
	for host, want := range map[string]string{
		"models.example.com": "one", "MODELS.example.com:8000": "one", "other.example.com": "two", "team-a.models.test": "team-a", "a.b.models.test": "rest",
		"models.test": "rest", "10.0.0.1:80": "rest", "[::1]:80": "rest", "": "rest",
	} {
		assert.Equal(t, want, s.namespaceOf(host), host)
	}
}
