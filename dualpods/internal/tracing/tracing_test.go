package tracing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWithoutACollectorNothingIsTraced(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing is said":    {},
		"the SDK is off":     {envEndpoint: "http://c:4318", envDisabled: "true"},
		"no exporter":        {envEndpoint: "http://c:4318", envExporter: "none"},
		"a protocol is said": {envProtocol: "http/protobuf"},
	} {
		tracing, err := Open(t.Context(), func(name string) string { return env[name] }, "test")
		require.NoError(t, err, name)
		assert.Nil(t, tracing, name)
		assert.Nil(t, tracing.Tracer("test"))
		require.NoError(t, tracing.Close())
	}
}

func TestACollectorThatCannotBeUsedIsNamed(t *testing.T) {
	for want, env := range map[string]map[string]string{
		envEndpoint + ` is "collector:4318": write it like http://collector:4318`: {envEndpoint: "collector:4318"},
		envTracesEndpoint + ` is "ftp://c": write it like`:                        {envTracesEndpoint: "ftp://c"},
		envProtocol + ` is "grpc": hotseat speaks http/protobuf alone`:            {envEndpoint: "http://c:4317", envProtocol: "grpc"},
	} {
		_, err := Open(t.Context(), func(name string) string { return env[name] }, "test")
		require.ErrorContains(t, err, want)
	}
}

func TestTraceOfAnActuationHasTheUIDOfItsRequester(t *testing.T) {
	of := Actuation("0b4a4d0e-6b1c-4e6f-8c2b-1f4b7c1d2e3f")
	assert.Equal(t, "0b4a4d0e6b1c4e6f8c2b1f4b7c1d2e3f", of.TraceID().String())
	assert.True(t, of.IsValid())
	assert.Equal(t, of.SpanID(), Actuation("0b4a4d0e-6b1c-4e6f-8c2b-1f4b7c1d2e3f").SpanID())
}
