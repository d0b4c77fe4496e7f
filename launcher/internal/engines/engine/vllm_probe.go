package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// This file asks vLLM one short question of a fixed text. vLLM has the endpoints of what
// its model can do and no others, so the first endpoint that takes the question tells the
// kind of model.

// probe is a question of one kind.
type probe struct {
	kind, path string
	body       func(model string) any
	read       func(answer []byte) (Answer, error)
}

// probeText is shorter than a block of the prefix cache, so that no answer comes from there.
const probeText = "The capital of France is"

// probes are tried in this order, but for the dear first one, which is asked for by its name. A model that embeds scores as well, and a model that
// scores classifies as well.
var probes = []probe{
	{kindLikeliest, "/v1/completions", func(model string) any {
		return map[string]any{"model": model, "prompt": probeText, "max_tokens": 1, "temperature": 0, "logprobs": likeliest}
	}, readCompletion},
	{kindCompletion, "/v1/completions", func(model string) any {
		return map[string]any{"model": model, "prompt": probeText, "max_tokens": 1, "temperature": 0}
	}, readCompletion},
	{"embedding", "/v1/embeddings", func(model string) any { return map[string]any{"model": model, "input": probeText} }, readNumbers},
	{"score", "/v1/score", func(model string) any {
		return map[string]any{"model": model, "text_1": probeText, "text_2": "Paris"}
	}, readNumbers},
	{"classification", "/classify", func(model string) any { return map[string]any{"model": model, "input": probeText} }, readNumbers},
	{"pooling", "/pooling", func(model string) any { return map[string]any{"model": model, "input": probeText} }, readNumbers},
	{"transcription", "/v1/audio/transcriptions", transcriptionForm, readTranscription},
}

// Probe asks for one answer. Without a kind it tries the kinds until the engine takes one. It
// asks for the token alone if the engine refuses to tell the likeliest ones (--max-logprobs).
func (v *VLLM) Probe(ctx context.Context, base, model string, key Secret, kind string) (Answer, error) {
	return v.ask(ctx, base, model, key, kind, probes)
}

// ask asks the questions of a kind, or without a kind each, until the engine takes one.
func (c caller) ask(ctx context.Context, base, model string, key Secret, kind string, questions []probe) (Answer, error) {
	var first error
	for _, p := range questions {
		if !p.fits(kind) {
			continue
		}
		answer, err := c.probe(ctx, base, model, key, p)
		if err == nil {
			return answer, nil
		}
		if !refusesKind(err) {
			return Answer{}, err
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = fmt.Errorf("the engine has no probe of the kind %q", kind)
	}
	return Answer{}, first
}

// fits reports whether a probe is tried for a kind.
func (p probe) fits(kind string) bool {
	switch kind {
	case "":
		return p.kind != kindLikeliest
	case kindLikeliest:
		return p.kind == kindLikeliest || p.kind == kindCompletion
	}
	return p.kind == kind
}

func (c caller) probe(ctx context.Context, base, model string, key Secret, p probe) (Answer, error) {
	body, err := c.call(ctx, http.MethodPost, base, p.path, p.body(model), key)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot get an answer: %w", err)
	}
	answer, err := p.read(body)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot get an answer: POST %s answered %q: %w", p.path, excerpt(body), err)
	}
	answer.Kind = p.kind
	return answer, nil
}

// refusesKind reports whether the engine does not take a question of that kind. Releases
// differ: if the model cannot do it, some have no such path and others refuse the body.
func refusesKind(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && slices.Contains([]int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusNotImplemented,
	}, status.Status)
}

// progressNames begin the lines of the counters that grow when vLLM does something.
var progressNames = []string{"vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total", "vllm:request_success_total"}

// Progress reads counters from GET /metrics. vLLM has none with --disable-log-stats.
func (v *VLLM) Progress(ctx context.Context, base string, key Secret) (string, error) {
	return v.counters(ctx, base, key, progressNames)
}

// counters returns the lines of GET /metrics that begin with one of the names.
func (c caller) counters(ctx context.Context, base string, key Secret, names []string) (string, error) {
	answer, err := c.call(ctx, http.MethodGet, base, "/metrics", nil, key)
	if err != nil {
		return "", fmt.Errorf("cannot read the engine's counters: %w", err)
	}
	var counters strings.Builder
	for line := range strings.Lines(string(answer)) {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) {
			counters.WriteString(line)
		}
	}
	return counters.String(), nil
}

func readCompletion(body []byte) (Answer, error) {
	var completion struct {
		Choices []struct {
			Text         string `json:"text"`
			FinishReason string `json:"finish_reason"`
			Logprobs     *struct {
				Tokens      []string             `json:"tokens"`
				TopLogprobs []map[string]float64 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	switch err := json.Unmarshal(body, &completion); {
	case err != nil:
		return Answer{}, err
	case len(completion.Choices) == 0:
		return Answer{}, errors.New("there is no choice in it")
	case completion.Choices[0].FinishReason == "abort": // an engine that goes to sleep cuts its requests, with status 200
		return Answer{}, errors.New("the engine has cut it")
	}
	choice := completion.Choices[0]
	answer := Answer{Token: choice.Text}
	if l := choice.Logprobs; l != nil && len(l.Tokens) > 0 {
		answer.Token = l.Tokens[0]
		if len(l.TopLogprobs) > 0 {
			answer.Likeliest = topOf(l.TopLogprobs[0])
		}
	}
	return answer, nil
}

// topOf returns the names with the highest values.
func topOf(values map[string]float64) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
	return names[:min(likeliest, len(names))]
}

// readNumbers reads the answer of a model that answers with numbers.
func readNumbers(body []byte) (Answer, error) {
	var pooled struct {
		Data []struct {
			Embedding any `json:"embedding"`
			Score     any `json:"score"`
			Probs     any `json:"probs"`
			Data      any `json:"data"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &pooled); err != nil {
		return Answer{}, err
	}
	var numbers []float64
	if len(pooled.Data) > 0 {
		first := pooled.Data[0]
		for _, field := range []any{first.Embedding, first.Score, first.Probs, first.Data} {
			numbers = flatten(numbers, field)
		}
	}
	switch len(numbers) {
	case 0:
		return Answer{}, errors.New("there is no number in it")
	case 1:
		return numberAnswer(numbers[0]), nil
	}
	return vectorAnswer(numbers), nil
}

// flatten appends the numbers of a JSON value, which may be lists of lists.
func flatten(numbers []float64, value any) []float64 {
	switch value := value.(type) {
	case float64:
		numbers = append(numbers, value)
	case []any:
		for _, item := range value {
			numbers = flatten(numbers, item)
		}
	}
	return numbers
}

// vectorAnswer names the largest dimensions of a vector, with their signs.
func vectorAnswer(numbers []float64) Answer {
	size := map[string]float64{}
	for n, value := range numbers {
		sign := "+"
		if value < 0 {
			sign = "-"
		}
		size[sign+strconv.Itoa(n)] = math.Abs(value)
	}
	top := topOf(size)
	return Answer{Token: top[0], Likeliest: top}
}

// numberAnswer rounds a number to steps of about two percent. Its neighbours count as
// likely too, so that numbers up to two steps apart are alike.
func numberAnswer(number float64) Answer {
	step := int(math.Round(50 * math.Asinh(number)))
	answer := Answer{Token: strconv.Itoa(step)}
	for n := step - likeliest/2; n <= step+likeliest/2; n++ {
		answer.Likeliest = append(answer.Likeliest, strconv.Itoa(n))
	}
	return answer
}

// transcriptionForm asks for the first token of half a second of a tone.
func transcriptionForm(model string) any {
	var content bytes.Buffer
	w := multipart.NewWriter(&content)
	for _, field := range [][2]string{{"model", model}, {"language", "en"}, {"temperature", "0"}, {"max_completion_tokens", "1"}} {
		_ = w.WriteField(field[0], field[1]) // a buffer takes every write
	}
	file, _ := w.CreateFormFile("file", "probe.wav")
	_, _ = file.Write(tone())
	_ = w.Close()
	return form{w.FormDataContentType(), content.Bytes()}
}

// tone is a WAV file: 16 kHz, mono, 16 bits, 400 Hz.
func tone() []byte {
	const rate, samples = 16000, 8000
	wav := []byte("RIFF")
	wav = binary.LittleEndian.AppendUint32(wav, 36+2*samples)
	wav = append(wav, "WAVEfmt "...)
	wav = binary.LittleEndian.AppendUint32(wav, 16)
	for _, short := range []uint16{1, 1} { // PCM, channels
		wav = binary.LittleEndian.AppendUint16(wav, short)
	}
	wav = binary.LittleEndian.AppendUint32(wav, rate)
	wav = binary.LittleEndian.AppendUint32(wav, 2*rate)
	for _, short := range []uint16{2, 16} { // bytes of a frame, bits of a sample
		wav = binary.LittleEndian.AppendUint16(wav, short)
	}
	wav = append(wav, "data"...)
	wav = binary.LittleEndian.AppendUint32(wav, 2*samples)
	for n := range samples {
		level := int16(8000)
		if n/20%2 == 1 { // a square wave of 40 samples
			level = -8000
		}
		wav = binary.LittleEndian.AppendUint16(wav, uint16(level))
	}
	return wav
}

func readTranscription(body []byte) (Answer, error) {
	var transcription struct {
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(body, &transcription); err != nil {
		return Answer{}, err
	}
	if transcription.Text == nil {
		return Answer{}, errors.New("there is no text in it")
	}
	return Answer{Token: *transcription.Text}, nil
}
