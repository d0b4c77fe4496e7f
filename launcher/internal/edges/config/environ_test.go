package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAMisspeltVariableIsToldWithTheNearestSetting(t *testing.T) {
	assert.Equal(t, []string{
		"the environment variable HOTSEAT_BUDGETS_MAX_INSTANCE is no setting and is ignored: did you mean HOTSEAT_BUDGETS_MAX_INSTANCES?",
		"the environment variable HOTSEAT_CONFG is no setting and is ignored: did you mean HOTSEAT_CONFIG?",
		"the environment variable HOTSEAT_LISTN is no setting and is ignored: did you mean HOTSEAT_LISTEN?",
		"the environment variable HOTSEAT_MAX_INSTANCES is no setting and is ignored: did you mean HOTSEAT_BUDGETS_MAX_INSTANCES?",
		"the environment variable HOTSEAT_MODEL_GC_LOW_THRESHOLD is no setting and is ignored" + Removed("model_gc_low_threshold"),
		"the environment variable HOTSEAT_TOKENFILE is no setting and is ignored: did you mean HOTSEAT_TOKEN_FILE?",
		"the environment variable HOTSEAT_XYZZY is no setting and is ignored",
	}, Ignored([]string{
		"HOTSEAT_XYZZY=1", "HOTSEAT_LISTN=:8001", "HOTSEAT_TOKENFILE=/t", "HOTSEAT_MAX_INSTANCES=3", "HOTSEAT_BUDGETS_MAX_INSTANCE=3", "HOTSEAT_CONFG=/c", "HOTSEAT_MODEL_GC_LOW_THRESHOLD=70",
	}))
}

func TestAVariableThatSomebodyReadsIsNotTold(t *testing.T) {
	environ := []string{
		"PATH=/bin", "HOTSEAT=1", "HOTSEAT_PUBLIC=127.0.0.1:8101", "hotseat_listn=x", "HOTSEAT_CONFIG=/c",
		"HOTSEAT_SERVICE_HOST=10.0.0.1", "HOTSEAT_SERVICE_PORT=80", "HOTSEAT_SERVICE_PORT_HTTP=80", "HOTSEAT_PORT=tcp://10.0.0.1:80",
		"HOTSEAT_LAUNCHER_PORT_8001_TCP_ADDR=10.0.0.1", "HOTSEAT_LAUNCHER_SERVICE_HOST=10.0.0.1", "HOTSEAT_LAUNCHER_PORT_8001_TCP=tcp://10.0.0.1:8001",
	}
	for _, name := range elsewhere {
		environ = append(environ, name+"=x")
	}
	for _, s := range table(&Config{}) {
		environ = append(environ, envName(s.key)+"=x")
	}
	assert.Empty(t, Ignored(environ))
}
