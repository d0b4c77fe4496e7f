package api

// responsePart is a part of a message of the responses API.
type responsePart struct {
	Annotations []any  `json:"annotations"`
	Text        string `json:"text"`
	Type        string `json:"type"`
	Logprobs    any    `json:"logprobs"`
}

type responseItem struct {
	ID      string         `json:"id"`
	Content []responsePart `json:"content"`
	Role    string         `json:"role"`
	Status  string         `json:"status"`
	Type    string         `json:"type"`
	Phase   any            `json:"phase"`
}

type inputDetails struct {
	CachedTokens        int   `json:"cached_tokens"`
	InputTokensPerTurn  []int `json:"input_tokens_per_turn"`
	CachedTokensPerTurn []int `json:"cached_tokens_per_turn"`
}

type outputDetails struct {
	ReasoningTokens         int   `json:"reasoning_tokens"`
	ToolOutputTokens        int   `json:"tool_output_tokens"`
	OutputTokensPerTurn     []int `json:"output_tokens_per_turn"`
	ToolOutputTokensPerTurn []int `json:"tool_output_tokens_per_turn"`
}

type responseUsage struct {
	InputTokens         int           `json:"input_tokens"`
	InputTokensDetails  inputDetails  `json:"input_tokens_details"`
	OutputTokens        int           `json:"output_tokens"`
	OutputTokensDetails outputDetails `json:"output_tokens_details"`
	TotalTokens         int           `json:"total_tokens"`
}

func responseTokens(input, output int) responseUsage {
	return responseUsage{
		InputTokens: input, InputTokensDetails: inputDetails{InputTokensPerTurn: []int{}, CachedTokensPerTurn: []int{}},
		OutputTokens: output, OutputTokensDetails: outputDetails{OutputTokensPerTurn: []int{}, ToolOutputTokensPerTurn: []int{}},
		TotalTokens: input + output,
	}
}

// float is a number that is written with a point, as Python writes floats.
type float float64

// MarshalJSON writes f.
func (f float) MarshalJSON() ([]byte, error) { return []byte(pythonFloat(float64(f))), nil }

type responseAnswer struct {
	ID                 string            `json:"id"`
	CreatedAt          int64             `json:"created_at"`
	IncompleteDetails  map[string]string `json:"incomplete_details"`
	Instructions       any               `json:"instructions"`
	Metadata           any               `json:"metadata"`
	Model              string            `json:"model"`
	Object             string            `json:"object"`
	Output             []responseItem    `json:"output"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	Temperature        float             `json:"temperature"`
	ToolChoice         string            `json:"tool_choice"`
	Tools              []any             `json:"tools"`
	TopP               float             `json:"top_p"`
	Background         bool              `json:"background"`
	MaxOutputTokens    int               `json:"max_output_tokens"`
	MaxToolCalls       any               `json:"max_tool_calls"`
	PreviousResponseID any               `json:"previous_response_id"`
	Prompt             any               `json:"prompt"`
	Reasoning          any               `json:"reasoning"`
	ServiceTier        string            `json:"service_tier"`
	Status             string            `json:"status"`
	Text               any               `json:"text"`
	TopLogprobs        any               `json:"top_logprobs"`
	Truncation         string            `json:"truncation"`
	Usage              responseUsage     `json:"usage"`
	User               any               `json:"user"`
	PresencePenalty    float             `json:"presence_penalty"`
	FrequencyPenalty   float             `json:"frequency_penalty"`
	KVTransferParams   any               `json:"kv_transfer_params"`
	ECTransferParams   any               `json:"ec_transfer_params"`
	InputMessages      any               `json:"input_messages"`
	OutputMessages     any               `json:"output_messages"`
}
