package cmdline

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// read is what vLLM's own parser made of a command line; testdata/reads.py
// writes them.
type read struct {
	Usage   string
	Failure string
	Values  map[string]any
}

func lines[T any](t *testing.T, file string) []T {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var list []T
	in := bufio.NewScanner(f)
	for in.Scan() {
		var v T
		require.NoError(t, json.Unmarshal(in.Bytes(), &v))
		list = append(list, v)
	}
	require.NoError(t, in.Err())
	return list
}

func TestCommandLinesAreReadAsVLLMReadsThem(t *testing.T) {
	t.Chdir("testdata") // the command lines name files there
	argvs, reads := lines[[]string](t, "argvs.jsonl"), lines[read](t, "reads.jsonl")
	require.Equal(t, len(argvs), len(reads))
	require.Empty(t, argvs[0], "the first one shows the defaults")
	for i, argv := range argvs {
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			got, err := NewParser(nil).Parse(argv)
			var usage *UsageError
			switch {
			case reads[i].Usage != "":
				require.ErrorAs(t, err, &usage)
				require.Equal(t, reads[i].Usage, err.Error())
			case reads[i].Failure != "":
				require.False(t, errors.As(err, &usage))
				require.EqualError(t, err, reads[i].Failure)
			default:
				require.NoError(t, err)
				compare(t, got, reads[i].Values, reads[0].Values)
			}
		})
	}
}

func compare(t *testing.T, got *Args, want, defaults map[string]any) {
	t.Helper()
	for dest, value := range want {
		given, ok := got.Values[dest]
		switch {
		case dest == "model_tag":
			tag, _ := value.(string)
			require.Equal(t, tag, got.ModelTag)
		case !ok:
			require.Equal(t, defaults[dest], value, dest)
		default:
			require.Equal(t, value, typed(t, dest, given), dest)
		}
	}
}

// typed reads strings as the option's type has them.
func typed(t *testing.T, dest string, values []string) any {
	t.Helper()
	for _, o := range vllmOptions() {
		if o.Dest() != dest {
			continue
		}
		if o.Arity == OneOrMore || o.Type == typeAppend {
			list := make([]any, len(values))
			for i, v := range values {
				list[i] = v
			}
			return list
		}
		var v any
		switch n, ok := HumanInt(values[0]); {
		case o.Type == "human":
			require.True(t, ok)
			return float64(n)
		case o.Type != "str" || strings.HasPrefix(values[0], "{"):
			text := values[0]
			if strings.HasPrefix(text, ".") {
				text = "0" + text
			}
			if json.Unmarshal([]byte(text), &v) == nil {
				return v
			}
		}
		return values[0]
	}
	require.FailNow(t, "no such option", dest)
	return nil
}

func TestOptionsOfOursStandBesideThoseOfVLLM(t *testing.T) {
	p := NewParser([]*Option{{Names: []string{"--sim-x"}, Arity: Optional}})
	a, err := p.Parse([]string{"m", "--sim_x", "--seed=1"})
	require.NoError(t, err)
	require.Equal(t, "true", a.Str("sim_x", ""))
	a, err = p.Parse([]string{"m", "--sim-x=2"})
	require.NoError(t, err)
	require.Equal(t, 2, a.Int("sim_x", 0))
	require.Equal(t, []string{"sim_x"}, a.Dests())
}

func TestDuplicateOptionsAreWarnedOf(t *testing.T) {
	a, err := NewParser(nil).Parse([]string{"m", "--port", "1", "--port=2"})
	require.NoError(t, err)
	require.Equal(t, "2", a.Str("port", ""))
	require.Equal(t, []string{"Found duplicate keys --port"}, a.Warnings)
}
