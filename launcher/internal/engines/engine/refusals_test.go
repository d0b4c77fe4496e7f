package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// refused plans a request that must be refused.
func refused(t *testing.T, r Request) *InputError {
	t.Helper()
	_, err := NewVLLM(VLLMOptions{}).Plan(r)
	var input *InputError
	require.ErrorAs(t, err, &input)
	return input
}

// refusals are arguments that cannot be used; what is said about them
// stands in testdata/refusals.golden.
var refusals = []struct {
	name string
	args []string
}{
	{"a Unix socket", []string{"m", "--uds", "/tmp/s"}},
	{"a Unix socket with underscores and =", []string{"m", "--uds=/tmp/s"}},
	{"an abbreviated Unix socket", []string{"m", "--ud=/tmp/s"}},
	{"an abbreviated port", []string{"m", "--por", "8000"}},
	{"an abbreviated host", []string{"m", "--ho=0.0.0.0"}},
	{"an abbreviation that is ambiguous", []string{"m", "--h", "x"}},
	{"an abbreviated short flag", []string{"m", "-t", "2"}},
	{"an abbreviation with an underscore", []string{"m", "--tensor_par", "2"}},
	{"an abbreviated sleep mode", []string{"m", "--enable-sleep"}},
	{"a key of the host", []string{"m", "--host.x", "1"}},
	{"a key of the port with =", []string{"m", "--port.x=1"}},
	{"a key that would take the next flag for its value", []string{"m", "--compilation-config.mode", "--port", "1"}},
	{"a key without a value at the end", []string{"m", "--compilation-config.mode"}},
	{"a negative number with a point, which vLLM takes for a key", []string{"m", "--swap-space", "-0.5"}},
	{"an optimization level that is a flag", []string{"m", "-O--port=1"}},
	{"the end of flags", []string{"m", "--", "--port", "1"}},
	{"a host of another machine", []string{"m", "--host", "10.1.2.3"}},
	{"a host name", []string{"m", "--host", "gpu-box"}},
	{"a port that is none", []string{"m", "--port", "http"}},
	{"a port out of range", []string{"m", "--port", "65536"}},
	{"a negative port", []string{"m", "--port", "-1"}},
	{"a port without a value", []string{"m", "--port"}},
	{"a port without a value before a flag", []string{"m", "--port", "--seed", "1"}},
	{"an empty port", []string{"m", "--port="}},
	{"a TLS key", []string{"m", "--ssl-keyfile", "k"}},
	{"a TLS certificate", []string{"m", "--ssl_certfile=c"}},
	{"a TLS flag of another release", []string{"m", "--ssl-of-tomorrow"}},
	{"TLS refresh", []string{"m", "--enable-ssl-refresh"}},
	{"no API server", []string{"m", "--headless"}},
	{"zero API servers", []string{"m", "-asc", "0"}},
	{"gRPC", []string{"m", "--grpc"}},
	{"several nodes", []string{"m", "--nnodes", "2"}},
	{"several nodes, written together", []string{"m", "-n2"}},
	{"several nodes, written together with a space", []string{"m", "-n 2"}},
	{"a server for each rank", []string{"m", "-dpm"}},
	{"a tensor parallel size of zero", []string{"m", "-tp", "0"}},
	{"a tensor parallel size that is none", []string{"m", "-tp=two"}},
	{"a memory share above one", []string{"m", "--gpu-memory-utilization", "1.5"}},
	{"a memory share that is none", []string{"m", "--gpu-memory-utilization", "nan"}},
	{"a switch with a value", []string{"m", "--enable-sleep-mode=true"}},
	{"two models", []string{"a", "--model", "b"}},
	{"the model twice", []string{"--model=a", "--model", "b"}},
	{"an argument too many", []string{"m", "--enforce-eager", "stray"}},
	{"an empty model", []string{"--model="}},
	{"a model that looks like a flag", []string{"--model=-x"}},
	{"no model, but values behind an unknown flag", []string{"--flag-of-tomorrow", "m"}},
	{"served names without one", []string{"m", "--served-model-name"}},
	{"two configuration files", []string{"m", "--config", "a.yaml", "--config=b.yaml"}},
	{"a configuration file without a name", []string{"m", "--config"}},
	{"a configuration file of another kind", []string{"m", "--config", "c.json"}},
	{"a configuration file that is missing", []string{"m", "--config", "testdata/config/missing.yaml"}},
	{"a configuration file that is a folder", []string{"m", "--config", "testdata/config/folder.yaml"}},
	{"a zero byte", []string{"m", "--chat-template", "a\x00b"}},
}

func TestWhatCannotBeHonouredIsRefusedInWords(t *testing.T) {
	var text strings.Builder
	for _, tt := range refusals {
		e := refused(t, Request{Args: tt.args})
		assert.Equal(t, "args", e.Field, tt.name)
		fmt.Fprintf(&text, "=== %s\n%q\n[%s] %s\n\n", tt.name, tt.args, e.Flag, e.Message)
	}
	golden(t, "testdata/refusals.golden", text.String())
}

func TestWrongConfigurationFilesAreRefusedInWords(t *testing.T) {
	tests := []struct{ name, content, want string }{
		{"it is malformed", "port: [1", "cannot read the --config file FILE: "},
		{"it is empty", "", "cannot read the --config file FILE: it has no option"},
		{"it is a list", "- a\n- b\n", "cannot read the --config file FILE: "},
		{"a key is no text", "1: 2\n", "cannot read the --config file FILE: its key 1 is not text"},
		{"a key stands twice", "port: 1\nport: 2\n", "cannot read the --config file FILE: "},
		{"it holds a Unix socket", "uds: /tmp/s\n", "the --config file FILE: --uds cannot be used"},
		{"it holds a Unix socket in disguise", "dtype: --uds=/tmp/s\n", "the --config file FILE: --uds cannot be used"},
		{"it holds a key of the host, which would win over the launcher's", "host.x: evil\n", "the --config file FILE: --host takes no keys"},
		{"its last key would take the launcher's host for a value", "x.y: true\n", "the --config file FILE: --x.y needs a value"},
		{"it ends the flags", "dtype: --\n", "the --config file FILE: -- cannot be used"},
		{"it abbreviates", "por: 1\n", "the --config file FILE: --por is an abbreviation"},
		{"its port is none", "port: http\n", "the --config file FILE: --port must be a whole number"},
		{"its port is nothing", "port:\n", "the --config file FILE: --port must be a whole number"},
		{"its host is of another machine", "host: 10.1.2.3\n", "--host 10.1.2.3 cannot be used"},
		{"it asks for several nodes", "nnodes: 2\n", "the --config file FILE: --nnodes cannot be used"},
		{"it asks for no API server", "headless: yes\n", "the --config file FILE: --headless cannot be used"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			require.NoError(t, os.WriteFile(path, []byte(tt.content), 0o600))
			e := refused(t, Request{Args: []string{"m", "--config", path}})
			assert.Equal(t, "args", e.Field)
			assert.NotEmpty(t, e.Flag)
			assert.Contains(t, e.Message, strings.ReplaceAll(tt.want, "FILE", path))
			assert.NotContains(t, e.Message, "\n")
		})
	}
}

func TestAMalformedConfigurationFileIsNotQuoted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("api-key: sesame\nport: [1\n"), 0o600))
	assert.NotContains(t, refused(t, Request{Args: []string{"m", "--config", path}}).Message, "sesame")
}

func TestAConfigurationFileThatIsAPipeDoesNotHoldTheLauncher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	answer := make(chan error, 1)
	go func() {
		_, err := NewVLLM(VLLMOptions{}).Plan(Request{Args: []string{"m", "--config", path}})
		answer <- err
	}()
	select {
	case err := <-answer:
		require.ErrorContains(t, err, "it is not a regular file")
	case <-time.After(patience.Wait()):
		t.Fatal("Plan still reads the pipe")
	}
}

func TestAHugeConfigurationFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, make([]byte, maxConfigFile+1), 0o600))
	assert.Contains(t, refused(t, Request{Args: []string{"m", "--config", path}}).Message, "larger than")
}

func TestRequestsThatAreWrongOutsideTheArgumentsNameTheirField(t *testing.T) {
	env := func(name, value string) map[string]string { return map[string]string{name: value} }
	tests := []struct {
		name string
		Request
		field, flag, want string
	}{
		{"neither options nor args", Request{}, "options", "", "the engine's arguments are missing"},
		{"both options and args", Request{Options: new("m"), Args: []string{"m"}}, "args", "", "both options and args"},
		{"an unterminated quote", Request{Options: new(`m --chat-template "a`)}, "options", "", "unterminated double-quoted string"},
		{"a zero byte in the options", Request{Options: new("m a\x00b")}, "options", "", "zero byte"},
		{"an argument that no program can be given", Request{Args: []string{"m", strings.Repeat("x", 128<<10)}}, "args", "", "argument 2 has 131072 bytes"},
		{"an error in options", Request{Options: new("m --uds x")}, "options", "--uds", "--uds cannot be used"},
		{
			"too few GPUs",
			Request{Options: new("m -tp 2 -pp 2"), GPUs: gpus(0, 1, 2)},
			"gpu_uuids", "--tensor-parallel-size",
			"the arguments need 4 GPUs (tensor parallel 2 x pipeline parallel 2), but gpu_uuids names 3",
		},
		{
			"too many GPUs",
			Request{Options: new("m"), GPUs: gpus(0, 1)},
			"gpu_uuids", "--tensor-parallel-size",
			"the arguments need 1 GPU (tensor parallel 1 x pipeline parallel 1), but gpu_uuids names 2",
		},
		{
			"too few GPUs for the local ranks",
			Request{Options: new("m -dp 4 -dpl 2 -pcp 2"), GPUs: gpus(0)},
			"gpu_uuids", "--data-parallel-size",
			"the arguments need 4 GPUs (tensor parallel 1 x pipeline parallel 1 x prefill context parallel 2 x local data parallel 2), but gpu_uuids names 1",
		},
		{"a GPU twice", Request{Options: new("m -tp 2"), GPUs: gpus(1, 1)}, "gpu_uuids", "", "gpu_uuids names GPU-00000001 twice"},
		{"two choices of GPUs", Request{Options: new("m --device-ids 0"), GPUs: gpus(1)}, "gpu_uuids", "--device-ids", "both choose the GPUs"},
		{"a MIG device beside another", Request{Options: new("m -tp 2"), GPUs: append(gpus(1), mig)}, "gpu_uuids", "", "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f is a MIG device"},
		{"a variable without a name", Request{Options: new("m"), Env: env("", "x")}, "env_vars.", "", `""`},
		{"a variable with = in its name", Request{Options: new("m"), Env: env("A=B", "x")}, "env_vars.A=B", "", `"A=B"`},
		{"a zero byte in a variable", Request{Options: new("m"), Env: env("A", "a\x00")}, "env_vars.A", "", "the value of A"},
		{"a variable that no program can be given", Request{Options: new("m"), Env: env("A", strings.Repeat("x", 128<<10-2))}, "env_vars.A", "", "A in env_vars has 131070 bytes"},
		{"the launcher's mark", Request{Options: new("m"), Env: env("HOTSEAT_INSTANCE", "x")}, "env_vars.HOTSEAT_INSTANCE", "", "HOTSEAT_INSTANCE cannot be set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := refused(t, tt.Request)
			assert.Equal(t, tt.field, e.Field)
			assert.Equal(t, tt.flag, e.Flag)
			assert.Contains(t, e.Message, tt.want)
		})
	}
}

func TestDeviceIDsAreTheUsersWithoutGPUUUIDs(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new("m --device-ids 0")})
	require.NoError(t, err)
	assert.Contains(t, p.Argv(testHost, testPort), "--device-ids")
}

func TestNoFlagOfVLLMIsTakenForAnAbbreviation(t *testing.T) {
	for flag := range vllmFlags {
		_, err := readItems([]string{"m", flag, "1"})
		require.NoError(t, err, flag)
	}
	require.Greater(t, len(vllmFlags), 400)
	for flag := range vllmReaders {
		assert.Contains(t, vllmFlags, flag, "vLLM has no such flag")
	}
	for short := range vllmShort {
		assert.Contains(t, vllmFlags, short, "vLLM has no such flag")
	}
}

func TestAnInputErrorIsFoundThroughWrapping(t *testing.T) {
	err := fmt.Errorf("cannot create: %w", inputError("args", "--uds", "no"))
	var input *InputError
	require.True(t, errors.As(err, &input))
	assert.Equal(t, "cannot create: no", err.Error())
}
