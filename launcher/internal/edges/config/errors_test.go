package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAMistakeInAFlagOrAVariableIsOneLineThatNamesIt(t *testing.T) {
	for name, tt := range map[string]struct {
		env  string
		args []string
		want string
	}{
		"a duration that is none": {
			args: []string{"--start-timeout=soon"},
			want: `--start-timeout: cannot read duration "soon": write it like "1m30s" or as a number of seconds`,
		},
		"a negative duration":              {args: []string{"--stop-grace=-1s"}, want: `--stop-grace: duration -1s is negative`},
		"a negative number of seconds":     {env: "HOTSEAT_STOP_GRACE=-1", want: `HOTSEAT_STOP_GRACE: duration -1 is negative`},
		"an endless duration":              {args: []string{"--wake-timeout=inf"}, want: `--wake-timeout: duration of +Inf seconds is out of range`},
		"no duration at all":               {args: []string{"--wake-timeout="}, want: `--wake-timeout: must be a duration such as "1m30s" or a number of seconds, not empty`},
		"a number that is none":            {env: "HOTSEAT_WATCH_BUFFER=many", want: `HOTSEAT_WATCH_BUFFER: must be a whole number, not "many"`},
		"a number too small":               {env: "HOTSEAT_WATCH_BUFFER=0", want: `HOTSEAT_WATCH_BUFFER: must be at least 1, not 0`},
		"a negative number":                {args: []string{"--budgets-max-instances=-1"}, want: `--budgets-max-instances: must be at least 0, not -1`},
		"a size that is none":              {args: []string{"--log-max-bytes=1XB"}, want: `--log-max-bytes: must be a number of bytes, or one with a unit such as "80GiB", not "1XB"`},
		"a bool that is none":              {args: []string{"--llm-d-compat=maybe"}, want: `--llm-d-compat: must be true or false, not "maybe"`},
		"a choice that there is not":       {env: "HOTSEAT_ON_EXIT=die", want: `HOTSEAT_ON_EXIT: must be one of stop, leave, not "die"`},
		"a level that there is not":        {args: []string{"--log-level=loud"}, want: `--log-level: must be one of debug, info, warn, error, not "loud"`},
		"an address without a port":        {args: []string{"--listen=127.0.0.1"}, want: `--listen: must be an address such as "127.0.0.1:8001", not "127.0.0.1"`},
		"an address with too large a port": {args: []string{"--listen=127.0.0.1:65536"}, want: `--listen: must be an address such as "127.0.0.1:8001", not "127.0.0.1:65536"`},
		"an address with a port by name":   {args: []string{"--listen=127.0.0.1:http"}, want: `--listen: must be an address such as "127.0.0.1:8001", not "127.0.0.1:http"`},
		"a host with a port":               {args: []string{"--instance-host=0.0.0.0:80"}, want: `--instance-host: must be a host without a port, such as "127.0.0.1", not "0.0.0.0:80"`},
		"an empty path in a list":          {args: []string{"--env-file-dirs=/a,,/b"}, want: `--env-file-dirs: a path in it is empty`},
		"a bad variable under a good flag": {env: "HOTSEAT_START_TIMEOUT=x", args: []string{"--start-timeout=1s"}, want: `HOTSEAT_START_TIMEOUT: cannot read duration "x": write it like "1m30s" or as a number of seconds`},
		"a file that is not there":         {args: []string{"--config=/nonexistent/hotseat.yaml"}, want: `/nonexistent/hotseat.yaml: cannot read the configuration file: no such file or directory`},
		"a file that is a folder":          {args: []string{"--config=/"}, want: `/: cannot read the configuration file: is a directory`},
		"newlines in a value":              {args: []string{"--on-exit=a\nb"}, want: `--on-exit: must be one of stop, leave, not "a\nb"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, "", []string{tt.env}, tt.args...)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tt.want, err.Error())
		})
	}
}

func TestAMistakeInTheFileIsOneLineThatNamesFileAndLine(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"an unknown key":                   {"gpus: auto\nlistn: 127.0.0.1:1\n", `:2: there is no setting "listn": did you mean listen?`},
		"an unknown key with dashes":       {"state-dir: /x\n", `:1: there is no setting "state-dir": did you mean state_dir?`},
		"an unknown key in capitals":       {"Listen: x\n", `:1: there is no setting "Listen": did you mean listen?`},
		"an unknown key like no other":     {"xyzzy: 1\n", `:1: there is no setting "xyzzy"`},
		"an unknown key in a section":      {"budgets:\n  max_instance: 1\n", `:2: there is no setting "budgets.max_instance": did you mean budgets.max_instances?`},
		"a key of an earlier release":      {"model_gc_high_threshold: 90\n", `:1: there is no setting "model_gc_high_threshold"; an earlier release had it: set the storage limit of the store, and the model retention lru: unused models are then removed when a pull needs their room`},
		"a key outside of its section":     {"max_instances: 1\n", `:1: there is no setting "max_instances": did you mean budgets.max_instances?`},
		"the flag of the file in the file": {"config: x\n", `:1: there is no setting "config"`},
		"a key that is no string":          {"1: 2\n", `:1: there is no setting "1"`},
		"a merge":                          {"<<: {gpus: auto}\n", `:1: there is no setting "<<"`},
		"a key twice":                      {"gpus: auto\n\nlisten: 127.0.0.1:1\ngpus: nvml\n", `:4: gpus is set a second time, after line 1: keep one`},
		"a key twice, once quoted":         {"gpus: auto\n\"gpus\": nvml\n", `:2: gpus is set a second time, after line 1: keep one`},
		"a key twice in a section":         {"budgets:\n  max_instances: 1\n  max_instances: 2\n", `:3: budgets.max_instances is set a second time, after line 2: keep one`},
		"a section twice":                  {"budgets: {max_instances: 1}\nbudgets: {min_residency: 1}\n", `:2: budgets is set a second time, after line 1: keep one`},
		"a string for a number":            {"watch_buffer: \"5\"\n", `:1: watch_buffer must be a whole number, not a string`},
		"a number for a string":            {"gpus: 2\n", `:1: gpus must be a string, not a number`},
		"a bool for a choice":              {"on_exit: true\n", `:1: on_exit must be one of stop, leave, not true or false`},
		"a string for a bool":              {"llm_d_compat: yes\n", `:1: llm_d_compat must be true or false, not a string`},
		"a list for a string":              {"gpus:\n- auto\n", `:2: gpus must be a string, not a list`},
		"a mapping for a duration":         {"stop_grace:\n  seconds: 5\n", `:2: stop_grace must be a duration such as "1m30s" or a number of seconds, not a mapping`},
		"nothing for a path":               {"token_file:\n", `:1: token_file must be a path, not nothing`},
		"a number in a list of paths":      {"env_file_dirs:\n- /a\n- 5\n", `:3: env_file_dirs must be a list of paths`},
		"a section that is no mapping":     {"budgets: 5\n", `:1: budgets must be a mapping of settings, as in "listen: 127.0.0.1:8001"`},
		"a file that is no mapping":        {"- listen\n", `:1: the file must be a mapping of settings, as in "listen: 127.0.0.1:8001"`},
		"an anchor":                        {"gpus: &a auto\n", `:1: gpus is written with an anchor, an alias or a tag: write the value itself`},
		"a second document":                {"gpus: auto\n---\ngpus: nvml\n", `:3: the file has a second document: keep one`},
		"malformed YAML":                   {"gpus: auto\nbudgets: [\nlisten: x\n", `:2: this is no YAML: sequence end token ']' not found`},
		"malformed JSON":                   {"{\"gpus\": \"auto\",\n \"listen\": \"x\"\n", `:1: this is no YAML: could not find flow mapping end token '}'`},
		"a quote that is not closed":       {"gpus: 'auto\n", `:1: this is no YAML: could not find end character of single-quoted text`},
		"bytes that are not UTF-8":         {"gpus: \xff\n", `: this is no YAML: it is not UTF-8`},
		"a zero byte":                      {"gpus: a\x00b\n", `: this is no YAML: it holds a zero byte`},
		"a fraction for a number":          {"watch_buffer: 1.5\n", `:1: watch_buffer: must be a whole number, not "1.5"`},
		"a value out of its range":         {"\nwatch_buffer: 0\n", `:2: watch_buffer: must be at least 1, not 0`},
		"a negative duration":              {"stop_grace: -5\n", `:1: stop_grace: duration -5 is negative`},
		"an empty duration":                {"stop_grace: \"\"\n", `:1: stop_grace: must be a duration such as "1m30s" or a number of seconds, not empty`},
		"an endless duration":              {"stop_grace: .inf\n", `:1: stop_grace: cannot read duration ".inf": write it like "1m30s" or as a number of seconds`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.file, nil)
			var e *Error
			require.ErrorAs(t, err, &e)
			_, after, found := strings.Cut(err.Error(), "hotseat.yaml")
			require.True(t, found, err.Error())
			assert.Equal(t, tt.want, after)
		})
	}
}

func TestWhatIsNearlyNothingIsNoMistake(t *testing.T) {
	standard, err := load(t, "", nil)
	require.NoError(t, err)
	for name, file := range map[string]string{
		"a comment":         "# nothing yet\n",
		"a byte order mark": "\uFEFF",
		"an empty document": "---\n",
		"an empty mapping":  "{}\n",
		"an empty section":  "budgets: {}\n",
		"an empty list":     "env_file_dirs: []\n",
		"windows line ends": "gpus: auto\r\nlog_format: text\r\n",
		"a default":         "listen: 127.0.0.1:8001\n",
		"JSON":              `{"listen": "127.0.0.1:8001", "budgets": {"max_instances": 0}, "llm_d_compat": false}`,
		"a dotted key":      "budgets.max_instances: 0\n",
		"a block of text":   "gpus: |-\n  auto\n",
		"a document's end":  "gpus: auto\n...\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, file, nil)
			require.NoError(t, err)
			assert.Empty(t, got.EnvFileDirs)
			got.EnvFileDirs = standard.EnvFileDirs
			assert.Equal(t, standard, got)
		})
	}
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	got, err := load(t, "", nil, "--config", empty)
	require.NoError(t, err)
	assert.Equal(t, standard, got)
}

func TestDurationsAndSizesInTheFile(t *testing.T) {
	c, err := load(t, "stop_grace: 1.5\nstart_timeout: 90\nwake_timeout: 1m30s\nlog_max_bytes: 1024\nbudgets:\n  max_host_sleeper_bytes: 1.5TiB\n", nil)
	require.NoError(t, err)
	assert.Equal(t, "1.5s 1m30s 1m30s", c.StopGrace.String()+" "+c.StartTimeout.String()+" "+c.WakeTimeout.String())
	assert.EqualValues(t, 1024, c.LogMaxBytes)
	assert.EqualValues(t, 3<<39, c.Budgets.MaxHostSleeperBytes)
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1024": 1024, "5B": 5, "9223372036854775807": 1<<63 - 1,
		"80GiB": 80 << 30, "80 GiB": 80 << 30, "80gib": 80 << 30, "80Gi": 80 << 30, "1KiB": 1024, "2MiB": 2 << 20, "1TiB": 1 << 40, "0.5KiB": 512,
		"1kB": 1000, "3MB": 3e6, "80GB": 80e9, "2TB": 2e12,
	} {
		got, err := ParseBytes(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "GiB", "-1", "-1GiB", "1.5", "1.5B", "1e3", "0x10", "1_000", "1PiB", "80Pi", "80G", "1 2", "1.2.3GiB", "9223372036854775808", "9000000TiB", "NaN", "inf", "infGiB", "١GiB"} {
		_, err := ParseBytes(text)
		assert.Error(t, err, text)
	}
}

// Whatever the file holds, it is either read or refused in one line that names
// the file.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		"", "listen: 127.0.0.1:1\n", "budgets:\n  max_instances: 5\n", `{"gpus": "auto"}`, "a: [\n", "a: &x 1\nb: *x\n", "env_file_dirs: [/a, /b]\n",
		"? a\n: b\n", "a: |\n  b\n", "gpus: 'x", "---\n---\n", "%YAML 1.2\n---\na: 1\n", "gpus: !!str 5\n", "gpus: {a: {b: [1, {c: d}]}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Config
		settings := table(&c)
		assignments, err := parseFile("hotseat.yaml", data, settings)
		if err != nil {
			var e *Error
			require.ErrorAs(t, err, &e)
			require.True(t, strings.HasPrefix(err.Error(), "hotseat.yaml"))
			require.NotContains(t, err.Error(), "\n")
			return
		}
		seen := map[string]bool{}
		for _, a := range assignments {
			require.False(t, seen[a.key], a.key)
			seen[a.key] = true
			for _, s := range settings {
				if s.key == a.key {
					_ = s.value.set(a.texts)
				}
			}
		}
	})
}

func TestNearestNameDiffersByTwoLettersAtMost(t *testing.T) {
	names := []string{"qwen", "llama", "b"}
	for asked, want := range map[string]string{
		"qwne": "qwen", "QWEN": "qwen", "lama": "llama", "bb": "b",
		"mistral": "", "x": "", "": "",
	} {
		assert.Equal(t, want, Nearest(asked, names), asked)
	}
}
