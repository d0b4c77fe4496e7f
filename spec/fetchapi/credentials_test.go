package fetchapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachSchemeTakesTheVariablesThatTheTableSays(t *testing.T) {
	text, err := os.ReadFile("../modelcache.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| Scheme | ")
	require.True(t, found)
	told := map[string]string{}
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			break
		}
		told[strings.Trim(cells[1], " `")] = strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", "")
	}
	is := map[string]string{}
	for scheme, of := range taken {
		is[scheme+"://"] = of.String()
	}
	assert.Equal(t, is, told)
}

func TestASourceTakesItsOwnCredentialsAndNoOthers(t *testing.T) {
	shared := Credentials{"HF_TOKEN": " t\n", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"}
	for uri, wanted := range map[string]Credentials{
		"hf://org/name": {"HF_TOKEN": "t"},
		"s3://m/a":      {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"},
	} {
		got, err := shared.For(uri)
		require.NoError(t, err)
		assert.True(t, assert.ObjectsAreEqual(map[string]string(wanted), map[string]string(got)), uri)
	}
	for name, c := range map[string]struct {
		uri   string
		given Credentials
		says  string
	}{
		"none at all":             {"hf://a", Credentials{}, "there are no credentials for hf://, which takes HF_TOKEN"},
		"two ways to ask":         {"azblob://a", Credentials{"AZURE_STORAGE_KEY": "secret", "AZURE_STORAGE_SAS_TOKEN": "secret"}, "only one of AZURE_STORAGE_KEY and AZURE_STORAGE_SAS_TOKEN; leave the others out"},
		"a part":                  {"azblob://a", Credentials{"AZURE_TENANT_ID": "secret"}, "AZURE_TENANT_ID with AZURE_CLIENT_ID with AZURE_CLIENT_SECRET together"},
		"what is beside alone":    {"s3://a", Credentials{"AWS_REGION": "eu"}, "there are no credentials for s3://"},
		"an account elsewhere":    {"azblob://a", Credentials{"AZURE_STORAGE_ACCOUNT": "evil.com/", "AZURE_STORAGE_KEY": "secret"}, "AZURE_STORAGE_ACCOUNT is not valid"},
		"a region elsewhere":      {"s3://a", Credentials{"AWS_REGION": "evil.com/", "AWS_ACCESS_KEY_ID": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}, "AWS_REGION is not valid"},
		"a server of one's own":   {"s3://a", Credentials{"AWS_ENDPOINT_URL": "https://secret"}, "AWS_ENDPOINT_URL is not taken: it names the address of a source"},
		"a file":                  {"gs://a", Credentials{"GOOGLE_APPLICATION_CREDENTIALS": "/secret"}, "give the content of the file as GOOGLE_APPLICATION_CREDENTIALS_JSON"},
		"a name that is mistyped": {"hf://a", Credentials{"HF_TOKEN": "secret", "hf_token": "secret"}, `"hf_token" is not known`},
		"bytes that are no text":  {"hf://a", Credentials{"HF_TOKEN": "secret\xff"}, "HF_TOKEN is empty, or is not text"},
	} {
		_, err := c.given.For(c.uri)
		require.ErrorContains(t, err, c.says, name)
		assert.NotContains(t, err.Error(), "secret", name)
	}
}

func TestCredentialsArePrintedWithoutTheirValues(t *testing.T) {
	c := Credentials{"HF_TOKEN": "secret"}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "credentials", c, "line", Line{Credentials: c})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "credentials", c)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v %s %v", c, c, c, c, Line{Credentials: c})+log.String(), "secret")
	text, err := json.Marshal(Line{Credentials: c})
	require.NoError(t, err)
	assert.Contains(t, string(text), "secret", "whom they are for is told")
}
