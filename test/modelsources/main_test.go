//go:build modelservers

package modelsources

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// bin is where the programs are.
var bin string

func TestMain(m *testing.M) {
	folder, err := harness.Folder("hotseat-modelsources-")
	if err == nil {
		bin = folder
		err = build(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build what the tests run:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cleaned{m}, goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// cleaned removes the programs after the tests.
type cleaned struct{ *testing.M }

// Run implements goleak's TestingM.
func (c cleaned) Run() int {
	defer os.RemoveAll(bin)
	return c.M.Run()
}

func build(ctx context.Context) error {
	if err := harness.Build(ctx, "../..", bin, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch"); err != nil {
		return err
	}
	servers := exec.CommandContext(ctx, "go", "-C", "../modelservers", "build", "-o", bin+"/",
		"github.com/distribution/distribution/v3/cmd/registry", "github.com/fsouza/fake-gcs-server", "github.com/versity/versitygw/cmd/versitygw")
	out, err := servers.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
