package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load reads a configuration from a command line, variables ("NAME=value") and
// the text of a file; without a file when it is empty.
func load(t *testing.T, file string, env []string, args ...string) (Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "hotseat.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append([]string{"--config", path}, args...)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := Register(flags)
	loader.uid = 1000
	require.NoError(t, flags.Parse(args))
	c, err := loader.Load(lookup(append([]string{"HOME=/home/a"}, env...)))
	c.File = "" // it differs from test to test, and has one of its own
	return c, err
}

func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, e := range env {
			if value, found := strings.CutPrefix(e, name+"="); found {
				return value, true
			}
		}
		return "", false
	}
}

func TestWithoutAnySourceEverySettingHasItsDefault(t *testing.T) {
	c, err := load(t, "", nil)
	require.NoError(t, err)
	assert.Equal(t, Config{
		Listen:        "127.0.0.1:8001",
		GPUs:          "auto",
		StateDir:      "/home/a/.local/state/hotseat",
		InstanceHost:  "127.0.0.1",
		Cgroups:       "auto",
		OnExit:        "stop",
		StartTimeout:  15 * time.Minute,
		SleepTimeout:  2 * time.Minute,
		WakeTimeout:   2 * time.Minute,
		StopGrace:     10 * time.Second,
		StartingGrace: 2 * time.Second,
		DrainTimeout:  30 * time.Second,
		MemoryTimeout: 30 * time.Second,
		FrontDoor:     "127.0.0.1:8000", FrontDoorTurn: 5 * time.Second,
		HoldTimeout: 2 * time.Minute,
		Fingerprint: true, FingerprintTimeout: 10 * time.Second, HangTimeout: 10 * time.Minute,
		MaxHeldRequests: 256,
		WatchBuffer:     1000,
		LogMaxBytes:     2 << 30,
		LogMaxFiles:     1000,
		LogMaxAge:       7 * 24 * time.Hour,
		LogLevel:        slog.LevelInfo,
		LogFormat:       "text",
		EnableSleepMode: "auto", EngineSocket: "auto", StartMethod: "auto", PreloadMemoryLimit: 8 << 30, PreloadIdleTimeout: 24 * time.Hour,
		ModelFetchMemory: 256 << 20,
		ModelStreams:     8, ModelRetention: "keep", CompileCache: "auto", CompileCacheLimit: 50 << 30,
	}, c)
}

// other gives, for each setting, a text that is not its default and the Config
// that it makes.
var other = map[string]struct {
	text string
	want func(*Config)
}{
	"listen":               {"localhost:9001", func(c *Config) { c.Listen = "localhost:9001" }},
	"visible_gpus":         {"0,GPU-b", func(c *Config) { c.VisibleGPUs = []string{"0", "GPU-b"} }},
	"gpus":                 {"simulated:2", func(c *Config) { c.GPUs = "simulated:2" }},
	"state_dir":            {"/state", func(c *Config) { c.StateDir = "/state" }},
	"vllm":                 {"/bin/enginesim", func(c *Config) { c.VLLM = "/bin/enginesim" }},
	"token_file":           {"/run/token", func(c *Config) { c.TokenFile = "/run/token" }},
	"tls_cert":             {"/run/tls.crt", func(c *Config) { c.TLSCert = "/run/tls.crt" }},
	"tls_key":              {"/run/tls.key", func(c *Config) { c.TLSKey = "/run/tls.key" }},
	"client_ca":            {"/run/ca.crt", func(c *Config) { c.ClientCA = "/run/ca.crt" }},
	"public_metrics":       {"true", func(c *Config) { c.PublicMetrics = true }},
	"insecure_public":      {"true", func(c *Config) { c.InsecurePublic = true }},
	"instance_host":        {"0.0.0.0", func(c *Config) { c.InstanceHost = "0.0.0.0" }},
	"cgroups":              {"none", func(c *Config) { c.Cgroups = "none" }},
	"on_exit":              {"leave", func(c *Config) { c.OnExit = "leave" }},
	"start_timeout":        {"1m30s", func(c *Config) { c.StartTimeout = 90 * time.Second }},
	"sleep_timeout":        {"2s", func(c *Config) { c.SleepTimeout = 2 * time.Second }},
	"wake_timeout":         {"3s", func(c *Config) { c.WakeTimeout = 3 * time.Second }},
	"stop_grace":           {"4s", func(c *Config) { c.StopGrace = 4 * time.Second }},
	"starting_grace":       {"5s", func(c *Config) { c.StartingGrace = 5 * time.Second }},
	"drain_timeout":        {"6s", func(c *Config) { c.DrainTimeout = 6 * time.Second }},
	"memory_timeout":       {"7s", func(c *Config) { c.MemoryTimeout = 7 * time.Second }},
	"hold_timeout":         {"8s", func(c *Config) { c.HoldTimeout = 8 * time.Second }},
	"fingerprint":          {"false", func(c *Config) { c.Fingerprint = false }},
	"fingerprint_timeout":  {"9s", func(c *Config) { c.FingerprintTimeout = 9 * time.Second }},
	"hang_timeout":         {"11m", func(c *Config) { c.HangTimeout = 11 * time.Minute }},
	"max_held_requests":    {"0", func(c *Config) { c.MaxHeldRequests = 0 }},
	"watch_buffer":         {"1", func(c *Config) { c.WatchBuffer = 1 }},
	"log_max_files":        {"7", func(c *Config) { c.LogMaxFiles = 7 }},
	"log_max_bytes":        {"1GiB", func(c *Config) { c.LogMaxBytes = 1 << 30 }},
	"log_max_age":          {"24h", func(c *Config) { c.LogMaxAge = 24 * time.Hour }},
	"log_level":            {"debug", func(c *Config) { c.LogLevel = slog.LevelDebug }},
	"log_format":           {"json", func(c *Config) { c.LogFormat = "json" }},
	"env_file_dirs":        {"/a,/b", func(c *Config) { c.EnvFileDirs = []string{"/a", "/b"} }},
	"llm_d_compat":         {"true", func(c *Config) { c.LLMDCompat = true }},
	"start_method":         {"fork", func(c *Config) { c.StartMethod = "fork" }},
	"preload_python":       {"/usr/bin/python3", func(c *Config) { c.PreloadPython = "/usr/bin/python3" }},
	"preload_memory_limit": {"3GiB", func(c *Config) { c.PreloadMemoryLimit = 3 << 30 }},
	"preload_idle_timeout": {"9m", func(c *Config) { c.PreloadIdleTimeout = 9 * time.Minute }},
	"enable_sleep_mode":    {"never", func(c *Config) { c.EnableSleepMode = "never" }},
	"rank_address":         {"10.0.0.8", func(c *Config) { c.RankAddress = "10.0.0.8" }},
	"engine_socket":        {"never", func(c *Config) { c.EngineSocket = "never" }},

	"front_door":            {"127.0.0.1:9000", func(c *Config) { c.FrontDoor, c.FrontDoorAsked = "127.0.0.1:9000", true }},
	"front_door_token_file": {"/run/door", func(c *Config) { c.FrontDoorTokenFile = "/run/door" }},
	"front_door_open":       {"true", func(c *Config) { c.FrontDoorOpen = true }},
	"front_door_turn":       {"9s", func(c *Config) { c.FrontDoorTurn = 9 * time.Second }},
	"llama_server":          {"/bin/llama-server", func(c *Config) { c.LlamaServer = "/bin/llama-server" }},

	"model_store":            {"/models", func(c *Config) { c.ModelStore = "/models" }},
	"model_user":             {"a", func(c *Config) { c.ModelUser = "a" }},
	"model_storage_limit":    {"2GiB", func(c *Config) { c.ModelStorageLimit = 2 << 30 }},
	"model_retention":        {"lru", func(c *Config) { c.ModelRetention = "lru" }},
	"model_source":           {"x=/y", func(c *Config) { c.ModelSources = []string{"x=/y"} }},
	"model_streams":          {"2", func(c *Config) { c.ModelStreams = 2 }},
	"model_fetch_memory":     {"128MiB", func(c *Config) { c.ModelFetchMemory = 128 << 20 }},
	"model_bytes_per_second": {"1MiB", func(c *Config) { c.ModelBytesPerSecond = 1 << 20 }},
	"compile_cache":          {"always", func(c *Config) { c.CompileCache = "always" }},
	"compile_cache_limit":    {"1GiB", func(c *Config) { c.CompileCacheLimit = 1 << 30 }},
	"model_claims":           {"a=/x,b=/y", func(c *Config) { c.ModelClaims = map[string]string{"a": "/x", "b": "/y"} }},

	"budgets.max_sleepers_per_gpu":      {"3", func(c *Config) { c.Budgets.MaxSleepersPerGPU = 3 }},
	"budgets.max_sleeper_bytes_per_gpu": {"4GiB", func(c *Config) { c.Budgets.MaxSleeperBytesPerGPU = 4 << 30 }},
	"budgets.max_host_sleeper_bytes":    {"5GiB", func(c *Config) { c.Budgets.MaxHostSleeperBytes = 5 << 30 }},
	"budgets.max_instances":             {"6", func(c *Config) { c.Budgets.MaxInstances = 6 }},
	"budgets.min_residency":             {"7s", func(c *Config) { c.Budgets.MinResidency = launcherapi.Duration(7 * time.Second) }},
}

// asYAML writes one setting as a file.
func asYAML(key, text string, kind value) string {
	if kind.list {
		text = "[" + text + "]"
	} else if kind.file&yamlString != 0 {
		text = fmt.Sprintf("%q", text)
	}
	if section, name, found := strings.Cut(key, "."); found {
		return section + ":\n  " + name + ": " + text + "\n"
	}
	return key + ": " + text + "\n"
}

func TestEverySettingCanBeMadeByItsFlagItsVariableAndItsKey(t *testing.T) {
	standard, err := load(t, "", nil)
	require.NoError(t, err)
	for _, s := range table(&Config{}) {
		t.Run(s.key, func(t *testing.T) {
			o, ok := other[s.key]
			require.True(t, ok, "the test does not know the setting")
			want := standard
			o.want(&want)
			require.NotEqual(t, standard, want)
			for name, source := range map[string]struct {
				file string
				env  []string
				args []string
			}{
				"flag":     {args: []string{flagName(s.key) + "=" + o.text}},
				"variable": {env: []string{envName(s.key) + "=" + o.text}},
				"file":     {file: asYAML(s.key, o.text, s.value)},
			} {
				got, err := load(t, source.file, source.env, source.args...)
				require.NoError(t, err, name)
				assert.Equal(t, want, got, name)
			}
		})
	}
	assert.Len(t, other, len(table(&Config{})))
}

func TestEveryFieldOfTheConfigIsInTheTable(t *testing.T) {
	var c Config
	for _, s := range table(&c) {
		require.NoError(t, s.value.set(s.value.split(other[s.key].text)))
	}
	c.FrontDoorAsked = true                                    // of no setting
	c.StopGrace, c.MaxHeldRequests, c.Fingerprint = 1, 1, true // their other text is 0 or false
	c.File = "/hotseat.yaml"                                   // of --config, which is no setting
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		assert.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	budget := reflect.ValueOf(c.Budgets)
	for i := range budget.NumField() {
		assert.False(t, budget.Field(i).IsZero(), budget.Type().Field(i).Name)
	}
}

func TestNamesFollowFromTheKey(t *testing.T) {
	assert.Equal(t, "--budgets-max-sleepers-per-gpu", flagName("budgets.max_sleepers_per_gpu"))
	assert.Equal(t, "HOTSEAT_BUDGETS_MAX_SLEEPERS_PER_GPU", envName("budgets.max_sleepers_per_gpu"))
	assert.Equal(t, "--llm-d-compat", flagName("llm_d_compat"))
}

func TestAFlagWinsOverAVariableOverTheFileOverTheDefault(t *testing.T) {
	file := "gpus: file:/from/file\nlog_format: json\nstart_timeout: 1\nenv_file_dirs: [/a, /b]\n"
	env := []string{"HOTSEAT_GPUS=simulated:3", "HOTSEAT_START_TIMEOUT=2", "HOTSEAT_LISTEN=", "HOTSEAT_ENV_FILE_DIRS=/c"}
	c, err := load(t, file, env, "--gpus", "simulated:4", "--gpus", "simulated:5")
	require.NoError(t, err)
	assert.Equal(t, "simulated:5", c.GPUs, "the last of two flags")
	assert.Equal(t, 2*time.Second, c.StartTimeout, "the variable")
	assert.Equal(t, []string{"/c"}, c.EnvFileDirs, "lists are replaced, not joined")
	assert.Equal(t, "json", c.LogFormat, "the file")
	assert.Equal(t, "127.0.0.1:8001", c.Listen, "the default, an empty variable being none")
}

func TestFileMayBeginWithAByteOrderMark(t *testing.T) {
	for _, file := range []string{"listen: 127.0.0.1:1\n", `{"listen": "127.0.0.1:1"}`} {
		c, err := load(t, "\uFEFF"+file, nil)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1:1", c.Listen)
	}
}

func TestTheFileCanBeNamedByAVariableAndTheFlagWins(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	require.NoError(t, os.WriteFile(one, []byte("gpus: one"), 0o600))
	require.NoError(t, os.WriteFile(two, []byte("gpus: two"), 0o600))
	c, err := load(t, "", []string{"HOTSEAT_CONFIG=" + one})
	require.NoError(t, err)
	assert.Equal(t, "one", c.GPUs)
	c, err = load(t, "", []string{"HOTSEAT_CONFIG=" + one}, "--config", two)
	require.NoError(t, err)
	assert.Equal(t, "two", c.GPUs)
}

func TestALowerSourceCanBeTakenBackByAnEmptyFlag(t *testing.T) {
	file := "vllm: x\ntoken_file: /t\nenv_file_dirs: [/a]\n"
	c, err := load(t, file, nil, "--vllm=", "--token-file=", "--env-file-dirs=")
	require.NoError(t, err)
	assert.Empty(t, c.VLLM+c.TokenFile)
	assert.Empty(t, c.EnvFileDirs)
}

func TestAListIsMadeOfRepeatedFlagsAndCommas(t *testing.T) {
	c, err := load(t, "", nil, "--env-file-dirs", "/a,/b", "--env-file-dirs", "/c")
	require.NoError(t, err)
	assert.Equal(t, []string{"/a", "/b", "/c"}, c.EnvFileDirs)
	c, err = load(t, "env_file_dirs:\n- /a,b\n- /c\n", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"/a,b", "/c"}, c.EnvFileDirs, "in the file a comma is part of a path")
	c, err = load(t, "env_file_dirs: /a\n", nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"/a"}, c.EnvFileDirs)
}

func TestPathsBecomeAbsolute(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	c, err := load(t, "", nil, "--state-dir", "state", "--token-file", "./token", "--env-file-dirs", "a")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(here, "state"), c.StateDir)
	assert.Equal(t, filepath.Join(here, "token"), c.TokenFile)
	assert.Equal(t, []string{filepath.Join(here, "a")}, c.EnvFileDirs)
}

func TestTheStateFolderIsWhereItsUserKeepsState(t *testing.T) {
	for name, tt := range map[string]struct {
		uid  int
		env  []string
		want string
	}{
		"root":                              {0, []string{"HOME=/root", "XDG_STATE_HOME=/x"}, "/var/lib/hotseat"},
		"a user with XDG_STATE_HOME":        {1000, []string{"HOME=/h", "XDG_STATE_HOME=/x"}, "/x/hotseat"},
		"a relative XDG_STATE_HOME is none": {1000, []string{"HOME=/h", "XDG_STATE_HOME=x"}, "/h/.local/state/hotseat"},
		"a user with a home":                {1000, []string{"HOME=/h"}, "/h/.local/state/hotseat"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			loader := Register(flags)
			loader.uid = tt.uid
			c, err := loader.Load(lookup(tt.env))
			require.NoError(t, err)
			assert.Equal(t, tt.want, c.StateDir)
		})
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := Register(flags)
	loader.uid = 1000
	_, err := loader.Load(lookup(nil))
	assert.EqualError(t, err, "--state-dir: there is no default without HOME or XDG_STATE_HOME: name the folder")
}

func TestAPublicAddressNeedsATokenOrAWordThatItDoesNot(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:8001", ":8001", "[::]:8001", "192.0.2.1:8001", "host.example:8001", "127.0.0.1.example:80"} {
		_, err := load(t, "", nil, "--listen", listen)
		require.ErrorContains(t, err, "--listen: "+listen+" can be reached from other machines", listen)
		assert.ErrorContains(t, err, "--token-file")
		assert.ErrorContains(t, err, "--insecure-public")
		_, err = load(t, "listen: \""+listen+"\"", nil)
		require.ErrorContains(t, err, "hotseat.yaml:1: listen: "+listen)
		_, err = load(t, "", []string{"HOTSEAT_LISTEN=" + listen}, "--token-file", "/t")
		require.NoError(t, err)
		_, err = load(t, "", []string{"HOTSEAT_LISTEN=" + listen}, "--insecure-public")
		require.NoError(t, err)
	}
	for _, listen := range []string{"127.0.0.1:0", "127.9.9.9:80", "[::1]:8001", "localhost:8001"} {
		_, err := load(t, "", nil, "--listen", listen)
		require.NoError(t, err)
	}
}

func TestTheHelpOfTheFlagsNamesKindAndDefault(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	Register(flags)
	usage := flags.FlagUsages()
	assert.Contains(t, usage, `--start-timeout duration`)
	assert.Contains(t, usage, `(default 15m)`)
	assert.Contains(t, usage, `--cgroups auto|v2|v1|none`)
	assert.Contains(t, usage, `--budgets-max-host-sleeper-bytes bytes`)
	for _, s := range table(&Config{}) {
		assert.Contains(t, usage, s.help)
	}
}
