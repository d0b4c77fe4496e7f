package podmeta_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func binding(instance, uid string) podmeta.Binding {
	return podmeta.Binding{
		Instance: instance, RequesterUID: "u-1", Namespace: "ns", Name: uid, GPUs: []string{"GPU-1", "GPU-0"}, ServingPort: 8000,
		SpecHash: "abc", Attempt: 2, Since: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
	}
}

// podOf returns a Pod of a namespace.
func podOf(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
}

func write(t *testing.T, pod *corev1.Pod, b podmeta.Binding) {
	t.Helper()
	key, value, err := b.Encode()
	require.NoError(t, err)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}

func TestARecordComesBackAsItWasWritten(t *testing.T) {
	pod := podOf("ns")
	first, second := binding("a.1-x", "r1"), binding("b", "r2")
	second.RequesterUID = "u-2"
	second.Since = second.Since.In(time.FixedZone("east", 3600))
	write(t, pod, second)
	write(t, pod, first)
	assert.Equal(t, `{"requesterUID":"u-1","namespace":"ns","name":"r1","gpus":["GPU-1","GPU-0"],"servingPort":8000,"specHash":"abc","attempt":2,"since":"2026-11-22T01:02:03Z"}`,
		pod.Annotations["dual-pod.llm-d.ai/binding.a.1-x"])
	got, problems := podmeta.ReadBindings(pod)
	assert.Empty(t, problems)
	second.Since = second.Since.UTC()
	assert.Equal(t, []podmeta.Binding{first, second}, got)
	assert.Equal(t, []string{"u-1", "u-2"}, podmeta.BoundTo(pod))
}

func TestRecordKnowsTheKeysOfItsAttempts(t *testing.T) {
	record := binding("a", "r1")
	later, again, other := record, record, record
	later.Attempt, again.Since, other.RequesterUID = record.Attempt+10, record.Since.Add(1), "u-11"
	for key, own := range map[string]bool{record.SwapKey(): true, later.SwapKey(): true, again.SwapKey(): false, other.SwapKey(): false, "": false, "another": false} {
		assert.Equal(t, own, record.HasKey(key), key)
	}
}

func TestADamagedRecordCostsItselfAlone(t *testing.T) {
	const good = `{"requesterUID":"u","namespace":"n","name":"r","gpus":["G"],"servingPort":80,"specHash":"h","attempt":1,"since":"2026-11-22T01:02:03Z"}`
	for name, tt := range map[string]struct{ key, value, want string }{
		"no JSON":                      {"bad", `{`, "is no JSON"},
		"nothing":                      {"bad", ``, "is no JSON"},
		"null":                         {"bad", `null`, "requesterUID is missing"},
		"another type":                 {"bad", strings.Replace(good, `1,`, `"1",`, 1), "is no JSON"},
		"no requester":                 {"bad", strings.Replace(good, `"u"`, `""`, 1), "requesterUID is missing"},
		"no hash":                      {"bad", strings.Replace(good, `specHash`, `hash`, 1), "specHash is missing"},
		"no GPUs":                      {"bad", strings.Replace(good, `["G"]`, `[]`, 1), "gpus should name each GPU by its UUID"},
		"a GPU twice":                  {"bad", strings.Replace(good, `["G"]`, `["G","H","G"]`, 1), "gpus names a GPU twice"},
		"a port that is none":          {"bad", strings.Replace(good, `80`, `70000`, 1), "servingPort 70000 is none: it should be 1 to 65535"},
		"an attempt before the first":  {"bad", strings.Replace(good, `1,`, `0,`, 1), "attempt 0 is none: they count from 1"},
		"fewer failures than none":     {"bad", strings.Replace(good, `1,`, `1,"failures":-7,`, 1), "failures -7 is no number of them: it should be 0 or more"},
		"no time":                      {"bad", strings.Replace(good, `since`, `when`, 1), "since is missing"},
		"a time that is none":          {"bad", strings.Replace(good, `2026`, `26`, 1), "is no JSON"},
		"no instance":                  {"", good, "the id of the instance is missing"},
		"an instance that is no label": {"-x", good, `instance id "-x" does not fit in the key of an annotation`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf("ns")
			write(t, pod, binding("good", "r"))
			key := podmeta.AnnotationBindingPrefix + tt.key
			pod.Annotations[key] = tt.value
			got, problems := podmeta.ReadBindings(pod)
			assert.Equal(t, []podmeta.Binding{binding("good", "r")}, got)
			require.Len(t, problems, 1)
			assert.Equal(t, "metadata.annotations["+key+"]", problems[0].Field)
			assert.Contains(t, problems[0].Message, tt.want)
			assert.Contains(t, problems[0].Message, "does not repair this record: restore it, or delete the Pod")
		})
	}
	pod := podOf("n")
	pod.Annotations = map[string]string{podmeta.AnnotationBindingPrefix + "x": strings.Replace(good, `"u"`, `"u","of":"a later release"`, 1)}
	got, problems := podmeta.ReadBindings(pod)
	assert.Empty(t, problems, "members of later releases are passed over")
	assert.Len(t, got, 1)
}

func TestRecordOfAnotherNamespaceCountsForNothing(t *testing.T) {
	pod := podOf("ns")
	foreign := binding("foreign", "r1")
	foreign.Namespace, foreign.RequesterUID = "elsewhere", "u-2"
	write(t, pod, foreign)
	got, problems := podmeta.ReadBindings(pod)
	assert.Empty(t, got)
	assert.Empty(t, problems, "it is nobody's to repair")
	assert.Empty(t, podmeta.BoundTo(pod))
	write(t, pod, binding("own", "r2"))
	assert.Equal(t, []string{"u-1"}, podmeta.BoundTo(pod))
}

func TestARecordThatCouldNotBeReadBackIsNotWritten(t *testing.T) {
	for instance, ok := range map[string]bool{strings.Repeat("x", 55): true, strings.Repeat("x", 56): false, "a/b": false, "x-": false, "": false, "A_b.c": true} {
		_, _, err := binding(instance, "r").Encode()
		assert.Equal(t, ok, err == nil, "%s: %v", instance, err)
	}
	b := binding("x", "r")
	b.Attempt = 0
	_, _, err := b.Encode()
	assert.EqualError(t, err, `cannot record the binding of instance "x": attempt 0 is none: they count from 1`)
}
