package podmeta_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestRankIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]podmeta.Rank{"0/2": {Index: 0, Size: 2}, "63/64": {Index: 63, Size: 64}} {
		read, problems := podmeta.ReadRequester(ranked(text))
		require.Empty(t, problems)
		assert.Equal(t, want, read.Rank)
		assert.Equal(t, text, read.Rank.String())
	}
	for _, text := range []string{"", "1", "2/2", "0/1", "-1/2", "0/65", "01/2", "1/2/3", " 1/2", "a/b"} {
		read, problems := podmeta.ReadRequester(ranked(text))
		require.Len(t, problems, 1, text)
		assert.Contains(t, problems[0].String(), "metadata.annotations[modelserving.hotseat.dev/rank]: ")
		assert.False(t, read.Rank.IsOne(), text)
	}
	assert.Empty(t, podmeta.Rank{}.String())
}

func TestServerThatCannotBeReadIsNone(t *testing.T) {
	pod := ranked("1/2")
	assert.Zero(t, podmeta.ReadServer(pod))
	pod.Annotations[podmeta.AnnotationServer] = `{"attempt": 3, "group": "g"}`
	assert.Zero(t, podmeta.ReadServer(pod), "not even a part of it")
	is := podmeta.Server{Attempt: "a", Group: "g", Entry: "10.0.0.7:20007"}
	pod.Annotations[podmeta.AnnotationServer] = is.Encode()
	assert.Equal(t, is, podmeta.ReadServer(pod))
}

func TestServerOfAnAttemptIsOneOfTwo(t *testing.T) {
	pod := ranked("1/2")
	is, next := podmeta.Server{Attempt: "a", Group: "g", Entry: "10.0.0.7:20007"}, podmeta.Server{Attempt: "b", Group: "h", Entry: "10.0.0.7:20015"}
	pod.Annotations[podmeta.AnnotationServer], pod.Annotations[podmeta.AnnotationNextServer] = is.Encode(), next.Encode()
	assert.Equal(t, []podmeta.Server{is, next, {}}, []podmeta.Server{podmeta.ServerOf(pod, "a"), podmeta.ServerOf(pod, "b"), podmeta.ServerOf(pod, "c")})
	assert.True(t, podmeta.IsReservedAnnotation(podmeta.AnnotationNextServer), "no template may have it")
}

// ranked returns a requester with that rank.
func ranked(rank string) *corev1.Pod {
	return requester(map[string]string{podmeta.AnnotationInferenceServerConfig: "llama", podmeta.AnnotationRank: rank})
}
