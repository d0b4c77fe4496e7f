package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllMissingProgramsAreNamedWithOneCommandThatInstallsThem(t *testing.T) {
	err := checkPrograms([][2]string{{"sh", "dash"}, {"no-such-b", "package-b"}, {"no-such-a", "package-a"}, {"no-such-a-too", "package-a"}})
	require.EqualError(t, err, "a cluster needs programs that are not here: no-such-b, no-such-a, no-such-a-too; "+
		"on Debian and Ubuntu this installs them: apt-get install --no-install-recommends package-a package-b")
	require.NoError(t, checkPrograms([][2]string{{"sh", "dash"}}))
}

func TestOnlyRootStartsAClusterAndIsToldSo(t *testing.T) {
	require.ErrorContains(t, checkUser(1000), "run this as root")
	require.NoError(t, checkUser(0))
}
