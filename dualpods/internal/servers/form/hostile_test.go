package form

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Directives of the wrong kind have made merge code crash before.
func TestHostilePatchesAreProblemsAndNoCrash(t *testing.T) {
	for _, patch := range []string{
		`$patch: 1`, `$patch: [a]`, `$patch: merge`, `spec: {$patch: {}}`, `spec: {$patch: replace}`, `spec: null`, `metadata: null`, `null`,
		`spec: {containers: [1]}`, `spec: {containers: [null]}`, `spec: {containers: [[]]}`, `spec: {containers: null}`, `spec: {containers: [{$patch: replace}]}`,
		`spec: {containers: [{$patch: 3, name: inference-server}]}`, `spec: {containers: [{name: 3}]}`, `spec: {containers: [{name: null}]}`, `spec: {containers: [{name: {a: b}}]}`,
		`spec: {$setElementOrder/containers: foo}`, `spec: {$setElementOrder/containers: [1]}`, `spec: {$setElementOrder/containers: [{}], containers: [{name: inference-server}]}`,
		`spec: {$retainKeys: x}`, `spec: {$retainKeys: [1]}`, `spec: {volumes: [{name: shared, $retainKeys: [1]}]}`, `spec: {volumes: [{name: shared, $retainKeys: {}}]}`,
		`metadata: {$deleteFromPrimitiveList/finalizers: x}`, `metadata: {$deleteFromPrimitiveList/finalizers: [{}]}`, `metadata: {finalizers: [{}], $setElementOrder/finalizers: [1]}`,
		`metadata: {labels: [a]}`, `metadata: {labels: {a: {b: c}}}`, `metadata: {labels: {$patch: replace}}`, `metadata: {labels: {$retainKeys: [a]}}`,
		`{"spec": {"containers": [{"name": "inference-server", "env": [{"name": ["x"]}]}]}}`, `{"": 1}`, `{"$setElementOrder/": []}`, `{"$deleteFromPrimitiveList/": []}`,
		serving(`env: {a: b}`), serving(`env: [{value: x}]`), serving(`env: [{$patch: delete}]`), serving(`ports: [{containerPort: "a"}]`), serving(`ports: [{containerPort: 1.5}]`), serving(`ports: [{containerPort: -1}], args: [m]`),
		serving(`resources: {limits: {nvidia.com/gpu: much}}`), serving(`resources: {limits: [1]}`), serving(`command: [""]`), serving(`command: [sh, -c, "\0"]`), serving(`command: [sh, -c, "vllm serve $'\\xff'"]`),
		serving(`command: [sh, -c, "` + strings.Repeat("$(", 3000) + `"]`),
		"a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d, *d]",
		strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000), strings.Repeat("[", 100000),
	} {
		assert.NotPanics(t, func() {
			_, problems := FromPatch(requester(t), patch)
			assert.NotEmpty(t, problems, "%.200s", patch)
		}, "%.200s", patch)
	}
}
