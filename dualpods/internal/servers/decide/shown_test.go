package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestALauncherWithAnAddressOfIPv6IsNamedAsAURLHasIt(t *testing.T) {
	o := with("awake")
	o.Launcher.IP = "fd00::7"
	assert.Equal(t, "http://[fd00::7]:40001/metrics", o.Awake().Proxy().MetricsURL)
}
