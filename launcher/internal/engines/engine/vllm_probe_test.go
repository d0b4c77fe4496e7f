package engine

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// completion has the shape that vLLM 0.30.0 was seen to answer in.
const completion = `{"choices":[{"index":0,"text":" Paris","finish_reason":"length","logprobs":{"text_offset":[0],"tokens":["9"],
	"token_logprobs":[-0.5],"top_logprobs":[{"9":-0.5,"3":-2,"5":-1,"4":-9,"8":-3,"7":-4}]}}]}`

func TestProbeReadsATokenAndTheLikeliestFive(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/v1/completions", answering(completion))
	answer, err := v.Probe(t.Context(), f.URL, "org/model", "sesame", kindLikeliest)
	require.NoError(t, err)
	assert.Equal(t, Answer{kindLikeliest, "9", []string{"9", "5", "3", "8", "7"}}, answer)
	assert.Equal(t, []string{
		`POST /v1/completions {"logprobs":5,"max_tokens":1,"model":"org/model","prompt":"The capital of France is","temperature":0}`,
	}, f.asked())
	assert.Equal(t, "Bearer sesame", f.lastRequest().Header.Get("Authorization"))

	_, err = v.Probe(t.Context(), f.URL, "org/model", "", "completion")
	require.NoError(t, err)
	assert.NotContains(t, f.lastRequest().Header, "Authorization")
}

func TestProbeAsksForTheTokenAloneUnlessToldOtherwise(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	for _, kind := range []string{"", "completion"} {
		answer, err := v.Probe(t.Context(), f.URL, "m", "", kind)
		require.NoError(t, err)
		assert.Equal(t, Answer{Kind: "completion", Token: "!"}, answer)
	}
	for _, question := range f.asked() {
		assert.NotContains(t, question, "logprobs")
	}
}

func TestProbeOfAnEngineWithoutLogprobsAsksForATokenAlone(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		status(http.StatusBadRequest, `{"error":{"message":"greater than max allowed: 0"}}`)(w, r)
		f.on("/v1/completions", answering(`{"choices":[{"text":"x","finish_reason":"length"}]}`))
	})
	answer, err := v.Probe(t.Context(), f.URL, "m", "", kindLikeliest)
	require.NoError(t, err)
	assert.Equal(t, Answer{Kind: "completion", Token: "x"}, answer)
}

func TestProbeFindsTheKindOfAModel(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		want       Answer
	}{
		"embedding":      {"/v1/embeddings", `{"data":[{"embedding":[0.1,-0.9,0.3,0.2,0.5,0.4,0]}]}`, Answer{"embedding", "-1", []string{"-1", "+4", "+5", "+2", "+3"}}},
		"one number":     {"/v1/embeddings", `{"data":[{"embedding":[0.1]}]}`, Answer{"embedding", "5", []string{"3", "4", "5", "6", "7"}}},
		"score":          {"/v1/score", `{"data":[{"index":0,"object":"score","score":0.5}]}`, Answer{"score", "24", []string{"22", "23", "24", "25", "26"}}},
		"classification": {"/classify", `{"data":[{"label":"Yes","probs":[0.2,0.8]}]}`, Answer{"classification", "+1", []string{"+1", "+0"}}},
		"pooling":        {"/pooling", `{"data":[{"object":"pooling","data":[[0.1,0.2],[0.3,-0.4]]}]}`, Answer{"pooling", "-3", []string{"-3", "+2", "+1", "+0"}}},
		"transcription":  {"/v1/audio/transcriptions", `{"text":" you"}`, Answer{Kind: "transcription", Token: " you"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, v := newFakeVLLM(t), newAdapter(t)
			f.on("/v1/completions", status(http.StatusNotFound, `{"detail":"Not Found"}`))
			f.on(tt.path, answering(tt.body))
			answer, err := v.Probe(t.Context(), f.URL, "m", "", "")
			require.NoError(t, err)
			assert.Equal(t, tt.want, answer)

			before := len(f.asked())
			again, err := v.Probe(t.Context(), f.URL, "m", "", answer.Kind)
			require.NoError(t, err)
			assert.Equal(t, answer, again)
			assert.Len(t, f.asked(), before+1, "a known kind costs one request")
		})
	}
}

func TestProbeSendsSpeechModelsAnAudioFile(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/v1/audio/transcriptions", answering(`{"text":""}`))
	_, err := v.Probe(t.Context(), f.URL, "whisper", "", "transcription")
	require.NoError(t, err)
	kind := f.lastRequest().Header.Get("Content-Type")
	assert.True(t, strings.HasPrefix(kind, "multipart/form-data; boundary="), kind)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader(strings.TrimPrefix(f.asked()[0], "POST /v1/audio/transcriptions ")))
	require.NoError(t, err)
	r.Header.Set("Content-Type", kind)
	assert.Equal(t, "whisper", r.FormValue("model"))
	assert.Equal(t, "1", r.FormValue("max_completion_tokens"))
	file, _, err := r.FormFile("file")
	require.NoError(t, err)
	wav, err := io.ReadAll(file)
	require.NoError(t, err)
	assert.Len(t, wav, 44+16000)
	assert.Equal(t, "RIFF", string(wav[:4]))
}

func TestProbeWithoutAnAnswerSaysWhatCame(t *testing.T) {
	for _, tt := range []struct {
		with  http.HandlerFunc
		want  string
		calls int
	}{
		{answering(`{"choices":[{"text":"","finish_reason":"abort"}]}`), `answered "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}": the engine has cut it`, 1},
		{answering(`{"choices":[]}`), `answered "{\"choices\":[]}": there is no choice in it`, 1},
		{answering(`oops`), `answered "oops"`, 1},
		{status(401, `{"error":"Unauthorized"}`), `answered 401 Unauthorized: {"error":"Unauthorized"}`, 1},
		{status(500, ""), `answered 500 Internal Server Error`, 1},
		{status(404, ""), `answered 404 Not Found`, len(probes) - 1},
	} {
		f, v := newFakeVLLM(t), newAdapter(t)
		f.on("/v1/completions", tt.with)
		_, err := v.Probe(t.Context(), f.URL, "m", "sesame", "")
		require.ErrorContains(t, err, "cannot get an answer: POST /v1/completions "+tt.want)
		assert.NotContains(t, err.Error(), "sesame")
		assert.Len(t, f.asked(), tt.calls)
	}
	_, err := newAdapter(t).Probe(t.Context(), "http://127.0.0.1:1", "m", "", "of another release")
	require.ErrorContains(t, err, `no probe of the kind "of another release"`)
}

func TestProgressIsWhatTheCountersSay(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	f.on("/metrics", answering("# HELP vllm:generation_tokens_total x\nvllm:generation_tokens_total{engine=\"0\"} 7.0\nvllm:num_requests_running 3.0\nvllm:prompt_tokens_total 9.0\n"))
	progress, err := v.Progress(t.Context(), f.URL, "")
	require.NoError(t, err)
	assert.Equal(t, "vllm:generation_tokens_total{engine=\"0\"} 7.0\nvllm:prompt_tokens_total 9.0\n", progress)
	f.on("/metrics", status(http.StatusInternalServerError, ""))
	_, err = v.Progress(t.Context(), f.URL, "")
	require.ErrorContains(t, err, "cannot read the engine's counters: GET /metrics answered 500")
}

func TestAnswersAreComparedWithTheLikeliestFive(t *testing.T) {
	recorded := Answer{Token: "a", Likeliest: []string{"a", "b", "c", "d", "e"}}
	for name, tt := range map[string]struct {
		answer Answer
		want   bool
	}{
		"the same token":                        {Answer{Token: "a"}, true},
		"the same token, others likely":         {Answer{Token: "a", Likeliest: []string{"a", "v", "w", "x", "y"}}, true},
		"the second, three in common":           {Answer{Token: "b", Likeliest: []string{"b", "a", "c", "x", "y"}}, true},
		"the second, two in common":             {Answer{Token: "b", Likeliest: []string{"b", "a", "w", "x", "y"}}, false},
		"another token, four in common":         {Answer{Token: "x", Likeliest: []string{"x", "a", "b", "c", "d"}}, false},
		"another token":                         {Answer{Token: "x"}, false},
		"the second, without its likeliest":     {Answer{Token: "b"}, false},
		"nothing, of an engine that is garbled": {Answer{}, false},
	} {
		assert.Equal(t, tt.want, tt.answer.Like(recorded), name)
	}
	alone := Answer{Token: "a"}
	assert.True(t, Answer{Token: "b", Likeliest: []string{"b", "a", "x", "y", "z"}}.Like(alone), "the recorded token is likely still")
	assert.False(t, Answer{Token: "b", Likeliest: []string{"b", "c", "x", "y", "z"}}.Like(alone))
	assert.False(t, Answer{Token: "b"}.Like(alone))
	assert.True(t, numberAnswer(0.51).Like(numberAnswer(0.50)))
	assert.False(t, numberAnswer(0.7).Like(numberAnswer(0.5)))
	assert.True(t, numberAnswer(-12.1).Like(numberAnswer(-12)))
	assert.False(t, numberAnswer(-0.5).Like(numberAnswer(0.5)))
}
