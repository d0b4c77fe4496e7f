//go:build modelservers

package modelsources

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASourceThatRefusesIsToldInWords(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		s := s3(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		right := s.env
		s.env = append(slices.Clone(right), "AWS_SECRET_ACCESS_KEY=hidden")
		s.refused(s.uri("m"), "AccessDenied: the source refuses access", "403 Forbidden (SignatureDoesNotMatch)", "AWS_ACCESS_KEY_ID")
		s.env = append(slices.Clone(right), "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=")
		s.refused(s.uri("m"), "400 Bad Request (InvalidArgument)", "AWS_ACCESS_KEY_ID") // S3 itself answers 403 to somebody without a credential
		s.env = right
		s.refused("s3://none/m", "NotFound")
	})
	t.Run("gs", func(t *testing.T) {
		t.Parallel()
		s := gs(t)
		s.refused("gs://none/m", "NotFound")
		s.put(map[string][]byte{"../../x": []byte("1")}, "leaves")
		s.refused(s.uri("leaves"), "Invalid", "is refused", `".."`)
		s.put(map[string][]byte{"/etc/x": []byte("1")}, "absolute")
		s.refused(s.uri("absolute"), "Invalid", "absolute")
		s.put(map[string][]byte{"a": []byte("1"), "a/b": []byte("1")}, "both")
		s.refused(s.uri("both"), "Invalid", "a file and a folder")
		s.env = []string{"GOOGLE_APPLICATION_CREDENTIALS=/none"}
		s.refused(s.uri("m"), "AccessDenied: cannot read the credential", "GOOGLE_APPLICATION_CREDENTIALS")
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		s := azblob(t)
		s.refused("azblob://none/m", "NotFound")
		right := s.env
		s.env = append(slices.Clone(right), "AZURE_STORAGE_KEY="+base64.StdEncoding.EncodeToString([]byte("hidden")))
		s.refused(s.uri("m"), "AccessDenied: the source refuses access", "(AuthorizationFailure)", "AZURE_STORAGE_KEY")
		s.env = append(slices.Clone(right), "AZURE_STORAGE_KEY=hidden!")
		s.refused(s.uri("m"), "AZURE_STORAGE_KEY is not an account key")
		s.env = append(slices.Clone(right), "AZURE_STORAGE_ACCOUNT=")
		s.refused(s.uri("m"), "AZURE_STORAGE_ACCOUNT names the account")
	})
	t.Run("oci", func(t *testing.T) {
		t.Parallel()
		s := oci(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		s.refused(strings.TrimSuffix(s.uri("m"), "v1")+"v2", "NotFound")
		s.refused(s.uri("none"), "NotFound")
		s.refused("oci://"+s.proxy.address+"/UPPER", "write it as oci://registry/repository:tag")
	})
}

func TestACredentialIsTakenFromItsProvidersPlaceAndKeptNowhere(t *testing.T) {
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		s := s3(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		file := filepath.Join(t.TempDir(), "credentials")
		require.NoError(t, os.WriteFile(file, []byte("[mine]\naws_access_key_id = ours\naws_secret_access_key = secret\n"), 0o600))
		s.env = append(s.env, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_PROFILE=mine", "AWS_SHARED_CREDENTIALS_FILE="+file)
		s.pull(s.uri("m"))
		s.keepsNone("secret")
	})
	t.Run("oci", func(t *testing.T) {
		t.Parallel()
		s := oci(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		s.proxy.wants("ours", "secret")
		s.refused(s.uri("m"), "AccessDenied: the source refuses access", "401 Unauthorized", "docker login "+s.proxy.address)
		login := func(password string) string {
			dir := t.TempDir()
			text, err := json.Marshal(map[string]any{"auths": map[string]any{s.proxy.address: map[string]any{"auth": base64.StdEncoding.EncodeToString([]byte("ours:" + password))}}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
			return "DOCKER_CONFIG=" + dir
		}
		s.env = []string{login("hidden")}
		s.refused(s.uri("m"), "AccessDenied: the source refuses access", "401 Unauthorized", "docker login "+s.proxy.address)
		s.env = []string{login("secret")}
		s.pull(s.uri("m"))
		s.keepsNone("secret")
		s.keepsNone(base64.StdEncoding.EncodeToString([]byte("ours:secret")))
	})
	t.Run("azblob", func(t *testing.T) {
		t.Parallel()
		s := azblob(t)
		s.put(map[string][]byte{"x": []byte("1")}, "m")
		key := strings.TrimPrefix(s.env[1], "AZURE_STORAGE_KEY=")
		s.env = []string{fmt.Sprintf("AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=%s;BlobEndpoint=http://%s/devstoreaccount1;", key, s.proxy.address)}
		s.pull(s.uri("m"))
		s.keepsNone(key)
	})
}
