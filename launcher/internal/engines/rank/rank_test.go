package rank

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestRankIsRead(t *testing.T) {
	r, err := Read(launcherapi.Rank{Group: "g", Index: 1, Size: 2, Entry: "[fd00::7]:40123"})
	require.NoError(t, err)
	assert.Equal(t, Rank{Group: "g", Index: 1, Size: 2, Host: "fd00::7", Port: 40123}, r)
	assert.Equal(t, "[fd00::7]:40123", r.Entry())
	for _, host := range []string{"10.0.0.7", "sample-0-prefill-0-0.sample", "host.", "a"} {
		_, err := Read(launcherapi.Rank{Group: "g", Size: 2, Entry: host + ":1"})
		require.NoError(t, err, host)
	}
}

func TestMistakeInARankNamesItsField(t *testing.T) {
	good := launcherapi.Rank{Group: "g", Index: 1, Size: 2, Entry: "10.0.0.7:40123"}
	for name, c := range map[string]struct {
		field string
		spoil func(*launcherapi.Rank)
	}{
		"no group":              {"group", func(r *launcherapi.Rank) { r.Group = "" }},
		"a long group":          {"group", func(r *launcherapi.Rank) { r.Group = strings.Repeat("g", 254) }},
		"one rank":              {"size", func(r *launcherapi.Rank) { r.Size, r.Index = 1, 0 }},
		"too many ranks":        {"size", func(r *launcherapi.Rank) { r.Size = 65 }},
		"an index too many":     {"index", func(r *launcherapi.Rank) { r.Index = 2 }},
		"a negative index":      {"index", func(r *launcherapi.Rank) { r.Index = -1 }},
		"no port":               {"entry", func(r *launcherapi.Rank) { r.Entry = "10.0.0.7" }},
		"port 0":                {"entry", func(r *launcherapi.Rank) { r.Entry = "10.0.0.7:0" }},
		"a port out of range":   {"entry", func(r *launcherapi.Rank) { r.Entry = "10.0.0.7:65536" }},
		"no host":               {"entry", func(r *launcherapi.Rank) { r.Entry = ":40123" }},
		"every host":            {"entry", func(r *launcherapi.Rank) { r.Entry = "0.0.0.0:40123" }},
		"a host with a path":    {"entry", func(r *launcherapi.Rank) { r.Entry = "a/b:40123" }},
		"a host that is a flag": {"entry", func(r *launcherapi.Rank) { r.Entry = "--port:40123" }},
	} {
		r := good
		c.spoil(&r)
		_, err := Read(r)
		var wrong *Error
		require.ErrorAs(t, err, &wrong, name)
		assert.Equal(t, c.field, wrong.Field, name)
		assert.Contains(t, wrong.Message, "rank."+c.field, name)
	}
}

func TestArgumentsOfARankCanBeReadBack(t *testing.T) {
	r := Rank{Index: 1, Size: 2, Host: "fd00::7", Port: 40123}
	args := r.Arguments()
	assert.Equal(t, []string{"--nnodes", "2", "--node-rank", "1", "--master-addr", "fd00::7", "--master-port", "40123", "--distributed-executor-backend", "mp"}, args)
	back, rest, ok := FromArguments(append(args, "--seed", "1"))
	require.True(t, ok)
	assert.Equal(t, r, back)
	assert.Equal(t, []string{"--seed", "1"}, rest)
	for _, other := range [][]string{nil, {"--seed", "1"}, args[:9], append([]string{"--seed=1"}, args...)} {
		_, rest, ok := FromArguments(other)
		assert.False(t, ok, "%q", other)
		assert.Equal(t, other, rest)
	}
}

func TestVariablesOfARank(t *testing.T) {
	r := Rank{Index: 1, Size: 4, Host: "entry", Port: 1, Address: "10.0.0.8", Interface: "eth0"}
	assert.Equal(t, []string{"ENTRY_ADDRESS=entry", "GROUP_SIZE=4", "VLLM_HOST_IP=10.0.0.8", "WORKER_INDEX=1"}, r.Variables())
	assert.Equal(t, []string{"GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME==eth0"}, r.Defaults())
}

func TestLateVariablesAreReplacedAsKubernetesDoes(t *testing.T) {
	values := LateValues([]int{40001, 40002}, &Rank{Index: 1, Size: 4, Host: "entry"})
	for text, want := range map[string]string{
		"$(PORT_0)":                     "40001",
		"tcp://*:$(PORT_1),$(PORT_0)":   "tcp://*:40002,40001",
		"$(GROUP_SIZE) $(WORKER_INDEX)": "4 1",
		"$(ENTRY_ADDRESS):1":            "entry:1",
		"$$(PORT_0)":                    "$(PORT_0)",
		"$$$(PORT_0)":                   "$40001",
		"$$$$(PORT_0)":                  "$$(PORT_0)",
		"$(HOME) $$(HOME) $$ $ $( $(PORT_8) $(PORT_01) $(port_0) ${PORT_0} (PORT_0)": "$(HOME) $$(HOME) $$ $ $( $(PORT_8) $(PORT_01) $(port_0) ${PORT_0} (PORT_0)",
	} {
		got, err := PutLate(text, values)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	alone := LateValues([]int{40001}, nil)
	got, err := PutLate("$(GROUP_SIZE) $(PORT_0)", alone)
	require.NoError(t, err)
	assert.Equal(t, "$(GROUP_SIZE) 40001", got, "an instance without a rank has no such variable")
	_, err = PutLate("$(PORT_0) $(PORT_3)", alone)
	var missing *MissingPortError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, 3, missing.Number)
}

func TestLateVariablesAreReplacedInArgumentsAndVariables(t *testing.T) {
	values := LateValues([]int{40001}, nil)
	spec := launcherapi.InstanceSpec{
		Args:    []string{"m", "--kv-transfer-config", `{"port": $(PORT_0)}`},
		EnvVars: map[string]launcherapi.EnvValue{"A": {Value: "$(PORT_0)"}, "B": {FromFile: "/vault/$(PORT_0)"}},
	}
	out, _, err := PutLateIn(spec, values)
	require.NoError(t, err)
	assert.Equal(t, []string{"m", "--kv-transfer-config", `{"port": 40001}`}, out.Args)
	assert.Equal(t, map[string]launcherapi.EnvValue{"A": {Value: "40001"}, "B": {FromFile: "/vault/$(PORT_0)"}}, out.EnvVars)
	assert.Equal(t, "$(PORT_0)", spec.EnvVars["A"].Value, "the request itself stays as it was")

	for want, spec := range map[string]launcherapi.InstanceSpec{
		"options":    {Options: new("m --x $(PORT_1)")},
		"args[1]":    {Args: []string{"m", "$(PORT_1)"}},
		"env_vars.B": {Args: []string{"m"}, EnvVars: map[string]launcherapi.EnvValue{"A": {}, "B": {Value: "$(PORT_1)"}}},
	} {
		_, field, err := PutLateIn(spec, values)
		require.Error(t, err)
		assert.Equal(t, want, field)
	}
}
