package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFrontDoorTableIsAsTheFileSays(t *testing.T) {
	p := examplePicture()
	p.door.Models[0].TookMS = 1234.5
	var out bytes.Buffer
	require.NoError(t, doorTable(p.door.Models, p.instances, p.gpus, topTime).write(&out))
	golden(t, "table/front-door", out.String())
}

func TestFrontDoorIsListedAndItsProfileChosen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
models:
- {name: m, options: some/model, gpus: 1}
profiles:
- {name: night, pins: {fast: m}}
`), 0o600))
	d := startDaemon(t, "--front-door", "127.0.0.1:0", "--config", file)
	require.Contains(t, d.do("front-door").out, ", profile: none (of night)\nNAME   STATE     GPUS   WAITING   IN FLIGHT   LAST TOOK\nm      stopped   -      0         0           -\n")
	require.Contains(t, d.do("front-door", "profile", "night").out, "profile: night (of night)\n")
	require.Contains(t, d.do("front-door", "-o", "json").out, `"profile": "night"`)
	require.Equal(t, "night\n:4\n", d.do("__complete", "front-door", "profile", "").out)
	require.Contains(t, d.do("front-door", "profile", "--none", "-o", "json").out, `"models": [`)
	require.Contains(t, d.do("front-door").out, "profile: none")
	r := d.call("front-door", "profile", "day")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `no profile "day"`)
	require.Contains(t, d.do("top").out, "MODEL  STATE")
}

func TestLauncherWithoutFrontDoorIsNamed(t *testing.T) {
	d := startDaemon(t, "--front-door=")
	r := d.call("front-door")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "this launcher has no front door; start it with --front-door ADDRESS")
	require.Contains(t, d.do("top", "--once").out, "no models\n")
}

func TestModelsWithoutAFrontDoorAreWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, []byte("models:\n- {name: a, options: some/model}\n- {name: b, options: some/model}\n"), 0o600))
	d := startDaemon(t, "--front-door=", "--config", file)
	require.Contains(t, d.log.text(), `msg="nothing serves the models of the configuration, since there is no front door; choose a free address for it by --front-door, or leave the models out" models=2 config=`+file)
}
