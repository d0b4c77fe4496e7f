package conformance

import "strings"

func plainSteps() []step {
	return []step{
		get("health", "/health"),
		{name: "health by HEAD", method: "HEAD", path: "/health"},
		{name: "health by OPTIONS", method: "OPTIONS", path: "/health"},
		post("health by POST", "/health", ""),
		get("ping", "/ping"),
		post("ping by POST", "/ping", ""),
		{name: "ping by HEAD", method: "HEAD", path: "/ping"},
		get("version", "/version"),
		get("load", "/load"),
		get("models", "/v1/models"),
		get("one model has no page", "/v1/models/tiny-a"),
		post("models by POST", "/v1/models", "{}"),
		{name: "models by DELETE", method: "DELETE", path: "/v1/models"},
		{name: "metrics", method: "GET", path: "/metrics", metrics: metrics{families: true, samples: "vllm:engine_sleep_state"}},
		get("the root has no page", "/"),
		get("no such path", "/no/such/path"),
		post("no such path by POST", "/no/such/path", "{}"),
		get("a slash too much", "/health/"),
		get("a doubled slash", "//health"),
		get("a dot segment", "/v1/../health"),
		get("another case", "/HEALTH"),
		get("an escaped letter", "/%68ealth"),
		get("chat by GET", "/v1/chat/completions"),
		post("no embeddings from a model that generates", "/v1/embeddings", `{"model":"tiny-a","input":"hi"}`),
		post("no rerank", "/rerank", "{}"),
		post("no score", "/score", "{}"),
		post("no pooling", "/pooling", "{}"),
		post("no classify", "/classify", "{}"),
		{name: "another origin", method: "GET", path: "/health", header: map[string]string{"Origin": "http://example.org"}},
		{name: "another origin asks before", method: "OPTIONS", path: "/v1/completions", header: map[string]string{
			"Origin": "http://example.org", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type",
		}},
	}
}

func answerSteps() []step {
	return []step{
		completion("completion", complete),
		completion("completion of a prompt of tokens", `{"model":"tiny-a","prompt":[40,41,42],"max_tokens":8,"temperature":0,"ignore_eos":true}`),
		completion("completion of two prompts", `{"model":"tiny-a","prompt":["The quick","brown fox"],"max_tokens":8,"temperature":0,"ignore_eos":true}`),
		completion("completion with an echo", `{"model":"tiny-a","prompt":"fox","echo":true,"max_tokens":8,"temperature":0,"ignore_eos":true}`),
		completion("completion of the default length", `{"model":"tiny-a","prompt":"fox","temperature":0,"ignore_eos":true}`),
		completion("two completions", `{"model":"tiny-a","prompt":"fox","n":2,"seed":1,"temperature":0.5,"max_tokens":8,"ignore_eos":true}`),
		completion("completion without a model", `{"prompt":"fox","max_tokens":8,"temperature":0,"ignore_eos":true}`),
		completion("completion, streamed", stream),
		completion("completion, streamed with usage", strings.Replace(stream, "}", `,"stream_options":{"include_usage":true}}`, 1)),
		completion("completion, streamed with usage in each event", strings.Replace(stream, "}", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`, 1)),
		chatting("chat", chat(`,"max_tokens":8`)),
		chatting("chat with max_completion_tokens", chat(`,"max_completion_tokens":8`)),
		chatting("chat with an unknown field", chat(`,"max_tokens":8,"bogus":1`)),
		chatting("chat, streamed", chat(`,"max_tokens":8,"stream":true`)),
		chatting("chat, streamed with usage", chat(`,"max_tokens":8,"stream":true,"stream_options":{"include_usage":true}`)),
		{name: "chat with a request id", method: "POST", path: "/v1/chat/completions", body: chat(`,"max_tokens":8`), header: map[string]string{"X-Request-Id": "my-request-1"}},
		post("responses", "/v1/responses", `{"model":"tiny-a","input":"The quick brown fox","max_output_tokens":8,"temperature":0}`),
		post("messages", "/v1/messages", `{"model":"tiny-a","messages":[{"role":"user","content":"hi"}],"max_tokens":1,"temperature":0}`),
		post("messages counted", "/v1/messages/count_tokens", `{"model":"tiny-a","messages":[{"role":"user","content":"hi"}]}`),
		post("invocations: a chat", "/invocations", chat(`,"max_tokens":8`)),
		post("invocations: a completion", "/invocations", complete),
		post("invocations: neither", "/invocations", `{"model":"tiny-a"}`),
		post("tokenize", "/tokenize", `{"model":"tiny-a","prompt":"The quick brown fox"}`),
		post("tokenize without a model", "/tokenize", `{"prompt":"The quick brown fox"}`),
		post("tokenize a chat", "/tokenize", `{"model":"tiny-a","messages":[{"role":"user","content":"The quick brown fox"}]}`),
		post("detokenize", "/detokenize", `{"model":"tiny-a","tokens":[40,300,301,302]}`),
	}
}

func refusedSteps() []step {
	return []step{
		completion("unknown model", strings.Replace(complete, "tiny-a", "nope", 1)),
		chatting("unknown model in a chat", `{"model":"nope","messages":[{"role":"user","content":"x"}]}`),
		completion("unknown model, streamed", strings.Replace(stream, "tiny-a", "nope", 1)),
		post("unknown model to tokenize", "/tokenize", `{"model":"nope","prompt":"x"}`),
		completion("malformed JSON", `{not json`),
		completion("JSON that ends too soon", `{"model":"tiny-a"`),
		completion("JSON that goes on too long", complete+`}`),
		completion("a list for a body", `[]`),
		completion("null for a body", `null`),
		chatting("empty body", ""),
		post("malformed JSON to tokenize", "/tokenize", `{`),
		post("detokenize without tokens", "/detokenize", `{"model":"tiny-a"}`),
		chatting("chat without messages", `{"model":"tiny-a"}`),
		completion("completion without a prompt", `{"model":"tiny-a"}`),
		completion("completion of an empty prompt", `{"model":"tiny-a","prompt":""}`),
		chatting("messages of the wrong type", `{"model":"tiny-a","messages":"hello"}`),
		chatting("no message", `{"model":"tiny-a","messages":[]}`),
		completion("a model of the wrong type", `{"model":5,"prompt":"x"}`),
		completion("max_tokens of the wrong type", `{"model":"tiny-a","prompt":"x","max_tokens":"x"}`),
		completion("max_tokens with a fraction", `{"model":"tiny-a","prompt":"x","max_tokens":1.5}`),
		completion("max_tokens below nothing", `{"model":"tiny-a","prompt":"x","max_tokens":-1}`),
		completion("no tokens at all", `{"model":"tiny-a","prompt":"x","max_tokens":0}`),
		chatting("chat with max_tokens below nothing", chat(`,"max_tokens":-1`)),
		completion("max_tokens beyond the context", `{"model":"tiny-a","prompt":"x","max_tokens":1000}`),
		chatting("chat with max_tokens beyond the context", chat(`,"max_tokens":1000`)),
		completion("a prompt beyond the context", `{"model":"tiny-a","prompt":"`+strings.Repeat("fox ", 400)+`","max_tokens":8}`),
		completion("temperature below nothing", `{"model":"tiny-a","prompt":"x","temperature":-1}`),
		completion("temperature of the wrong type", `{"model":"tiny-a","prompt":"x","temperature":"hot"}`),
		completion("top_p too large", `{"model":"tiny-a","prompt":"x","top_p":2}`),
		completion("two greedy answers", `{"model":"tiny-a","prompt":"x","n":2,"temperature":0}`),
		completion("options of a stream without one", `{"model":"tiny-a","prompt":"x","stream_options":{"include_usage":true}}`),
		{name: "a body that is said to be text", method: "POST", path: "/v1/completions", body: complete, header: map[string]string{"Content-Type": "text/plain"}},
		{name: "a body of no type", method: "POST", path: "/v1/completions", body: complete, header: map[string]string{"Content-Type": ""}},
	}
}

func sleepSteps() []step {
	return []step{
		isSleeping("awake at first"),
		post("sleep at level 1", "/sleep?level=1", ""),
		isSleeping("asleep at level 1"),
		sleepState("metrics at level 1"),
		get("health while asleep", "/health"),
		get("models while asleep", "/v1/models"),
		get("load while asleep", "/load"),
		post("tokenize while asleep", "/tokenize", `{"model":"tiny-a","prompt":"fox"}`),
		completion("an error while asleep", `{"model":"nope","prompt":"x"}`),
		post("sleep again", "/sleep?level=1", ""),
		isSleeping("still asleep"),
		post("wake", "/wake_up", ""),
		isSleeping("awake again"),
		sleepState("metrics awake again"),
		post("wake again", "/wake_up", ""),
		completion("completion after the wake", complete),
		post("sleep at no level", "/sleep", ""),
		sleepState("metrics at no level"),
		post("wake from no level", "/wake_up", ""),
		get("sleep by GET", "/sleep"),

		post("sleep at level 2", "/sleep?level=2", ""),
		isSleeping("asleep at level 2"),
		sleepState("metrics at level 2"),
		post("wake the weights", "/wake_up?tags=weights", ""),
		isSleeping("weights awake"),
		sleepState("metrics with weights awake"),
		post("reload the weights", "/collective_rpc", `{"method":"reload_weights"}`),
		isSleeping("weights reloaded"),
		post("wake the cache", "/wake_up?tags=kv_cache", ""),
		isSleeping("all awake"),
		post("reset the prefix cache", "/reset_prefix_cache", ""),
		completion("completion after level 2", complete),

		post("sleep at level 0", "/sleep?level=0", ""),
		isSleeping("asleep at level 0"),
		sleepState("metrics at level 0"),
		post("wake from level 0", "/wake_up", ""),
		isSleeping("awake from level 0"),
		post("sleep at level 3", "/sleep?level=3", ""),
		isSleeping("asleep at level 3"),
		sleepState("metrics at level 3"),
		post("wake from level 3", "/wake_up", ""),
		isSleeping("awake from level 3"),
		post("sleep at a level that is no number", "/sleep?level=abc", ""),
		post("sleep in an unknown mode", "/sleep?mode=bogus", ""),
		isSleeping("awake after an unknown mode"),
		post("sleep with the level in the body", "/sleep", `{"level":2}`),
		sleepState("metrics with the level in the body"),
		post("wake an unknown tag", "/wake_up?tags=bogus", ""),
		isSleeping("asleep after an unknown tag"),
		post("wake with both tags", "/wake_up?tags=weights&tags=kv_cache", ""),
		isSleeping("awake with both tags"),

		post("a call of no method", "/collective_rpc", "{}"),
		post("a call of an unknown method", "/collective_rpc", `{"method":"no_such"}`),
		post("a malformed call", "/collective_rpc", "{"),
		post("pause", "/pause", ""),
		get("paused", "/is_paused"),
		isSleeping("paused counts as asleep"),
		post("resume", "/resume", ""),
		get("not paused", "/is_paused"),
		completion("completion in the end", complete),
	}
}

// inFlightSteps are asked of an engine whose answers can be endless: whatever
// comes meanwhile finds them in flight, however fast the machine is.
func inFlightSteps() []step {
	meanwhile := func(s step, begun begun, steps ...step) step {
		s.begun, s.meanwhile = begun, steps
		return s
	}
	return []step{
		post("sleep before a request", "/sleep?level=1", ""),
		meanwhile(completion("a request while asleep", complete), held,
			isSleeping("asleep while a request is held"), post("wake while a request is held", "/wake_up", "")),
		meanwhile(completion("a stream when sleep comes", endlessStream), streaming,
			post("sleep while streaming", "/sleep?level=1", "")),
		post("wake after a stream", "/wake_up", ""),
		meanwhile(completion("an answer when sleep comes", endlessComplete), running,
			post("sleep while answering", "/sleep?level=1", "")),
		post("wake after an answer", "/wake_up", ""),
		meanwhile(chatting("a chat when sleep comes", chat(`,"max_tokens":60000,"stream":true`)), streaming,
			post("sleep while chatting", "/sleep?level=2", "")),
		post("wake after a chat", "/wake_up", ""),
		post("reload after a chat", "/collective_rpc", `{"method":"reload_weights"}`),
		meanwhile(completion("a stream when a waiting sleep comes", longStream), streaming,
			post("sleep that waits", "/sleep?level=1&mode=wait", "")),
		post("wake after a wait", "/wake_up", ""),
		meanwhile(completion("a stream when a keeping sleep comes", longStream), streaming,
			post("sleep that keeps", "/sleep?level=1&mode=keep", ""), post("wake after a keep", "/wake_up", "")),
		completion("completion after all", complete),
	}
}

// userSteps are asked of an engine without the developer endpoints, and with
// two names and a key.
func userSteps() []step {
	key := map[string]string{"Authorization": "Bearer sekret"}
	with := func(s step) step {
		s.header = key
		return s
	}
	return []step{
		get("models without a key", "/v1/models"),
		{name: "models with a wrong key", method: "GET", path: "/v1/models", header: map[string]string{"Authorization": "Bearer wrong"}},
		with(get("models with the key", "/v1/models")),
		completion("completion without a key", complete),
		with(completion("completion with the key", complete)),
		with(completion("completion by the second name", strings.Replace(complete, "tiny-a", "other-name", 1))),
		get("health needs no key", "/health"),
		get("version needs no key", "/version"),
		post("tokenize needs no key", "/tokenize", `{"prompt":"x"}`),
		get("no /is_sleeping for users", "/is_sleeping"),
		post("no /sleep for users", "/sleep?level=1", ""),
		post("no /wake_up for users", "/wake_up", ""),
		post("no /collective_rpc for users", "/collective_rpc", `{"method":"reload_weights"}`),
		post("no /reset_prefix_cache for users", "/reset_prefix_cache", ""),
		post("no /pause for users", "/pause", ""),
		get("no /server_info for users", "/server_info"),
	}
}
