package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAnEmptyInstanceHostIsNotTakenForEverywhere(t *testing.T) {
	_, err := load(t, "", nil, "--instance-host=")
	assert.EqualError(t, err, `--instance-host: must be a host without a port, such as "127.0.0.1", not empty`)
}
