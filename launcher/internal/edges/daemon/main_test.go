package daemon

import (
	"fmt"
	"os"
	"testing"

	"hotseat.dev/hotseat/test/helpers/harness"
)

func TestMain(m *testing.M) {
	temporary, err := harness.OwnTemporaryFolder() // launchers leave the folder for their sockets there
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(temporary)
	os.Exit(code)
}
