package sourcesecret

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/fetchapi"
)

func TestALoginOfARegistryIsTakenFromTheSecretThatKubectlMakes(t *testing.T) {
	const login = `{"auths": {}}`
	has := fetchapi.Credentials{DockerConfig: login}
	s := For("ns/hub", has, "oci://ghcr.io/org/m:v1")
	assert.Empty(t, s.Problem)
	assert.Equal(t, map[string]string{"DOCKER_AUTH_CONFIG": DockerConfig}, s.Keys)
	assert.Equal(t, login, s.Values["DOCKER_AUTH_CONFIG"])
	assert.Contains(t, has, DockerConfig, "what was read is not changed")
}
