package secrets

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names of variables, flags and keys of JSON whose values are secrets, and of
// those whose values are not, although they look so.
const (
	namesOfSecrets = `HF_TOKEN HUGGING_FACE_HUB_TOKEN TOKEN token HFTOKEN GITHUB_TOKEN CI_JOB_TOKEN accessToken access_token refresh-token
		TELEGRAM_BOT_TOKEN WANDB_API_KEY TOKENIZER_API_KEY OPENAI_KEY OPENAI_API_KEY OPENAI_API_KEY_2 openaiApiKey apikey APIKEY x-api-key MY_KEY
		VLLM_API_KEY --api-key --api_key SSL_KEY SSH_PRIVATE_KEY privateKey encryption.key AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
		s3-secret SECRET client_secret clientSecret SECRETS DB_PASS DB_PASSWORD PGPASSWORD MYSQL_PWD SSH_PASSPHRASE password passwd userPassword
		GITHUB_PAT PAT GITLAB_PAT_2 GOOGLE_APPLICATION_CREDENTIALS credential credentials Authorization PROXY_AUTHORIZATION BASIC_AUTH
		BEARER jwt SESSION_COOKIE API_TOKENS API_KEYS --hf-token --no-such-token --sim-secret --model-loader-extra-config.aws_secret_access_key
		HOTSEAT_TOKEN AZURE_STORAGE_KEY KV_STORE_PASSWORD KEYSPACE_PASSWORD TOKENIZER_TOKEN`

	namesOfNone = `--sim-token-time --max-num-batched-tokens max_tokens --max-num-scheduled-tokens --max-num-queued-tokens min_tokens num_tokens
		TOKENIZER TOKENIZERS_PARALLELISM --tokenizer --tokenizer-mode --tokenizer-revision --skip-tokenizer-init --enable-tokenizer-info-endpoint
		--return-tokens-as-token-ids --tokens-only --spec-tokens --long-prefill-token-threshold --dbo-decode-token-threshold
		eos_token pad_token bos_token eos_token_id pad_token_id image_token_index stop_token_ids num_speculative_tokens token_type_ids
		tokens_per_second time_per_token TOKEN_LIMIT token_budget
		KEY key KEY_1 KV_CACHE_DTYPE --kv-cache-dtype kv_connector KV_KEY KEYSPACE MONKEY KEYBOARD key_value num_key_value_heads key_length linear_key_head_dim
		public_key PUBLIC_KEY sort_key partition_key cache_key ignore_keys_at_rope_validation --ssl-keyfile --ssl-certfile
		pass_config --compilation-config.pass_config.fuse_norm_quant two_pass num_pass BYPASS PASSTHROUGH COMPASS
		PWD OLDPWD PATH PATTERN --ignore-patterns AUTHOR --allow-credentials SECRET_NAME API_KEY_FILE TOKEN_FILE PASSWORD_FILE
		ENABLE_AUTH AUTH_ENABLED PLAIN HOME CUDA_VISIBLE_DEVICES SECRETARY`
)

func TestANameSaysWhetherItsValueIsASecret(t *testing.T) {
	for _, name := range strings.Fields(namesOfSecrets) {
		assert.True(t, IsName(name), name)
	}
	for _, name := range strings.Fields(namesOfNone) {
		assert.False(t, IsName(name), name)
	}
}

func TestOfVLLMsOwnFlagsTwoHoldSecrets(t *testing.T) {
	f, err := os.Open("../../engines/engine/vllm_flags.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, _, _ := strings.Cut(lines.Text(), " "); IsName(name) {
			found = append(found, name)
		}
	}
	assert.Equal(t, []string{"--api-key", "--hf-token"}, found)
}
