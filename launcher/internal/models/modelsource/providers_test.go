package modelsource

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// theirs are addresses at providers of which each is the server of a test, reached as
// its environment says, and the environment's variable that holds a credential.
func theirs(t *testing.T, server string) map[string]string {
	t.Helper()
	host := strings.TrimPrefix(server, "http://")
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
		"STORAGE_EMULATOR_HOST": host, "GOOGLE_APPLICATION_CREDENTIALS": "",
		"AZURE_STORAGE_ACCOUNT": "account", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=hidden", "AZURE_STORAGE_KEY": "", "AZURE_STORAGE_DOMAIN": host, "AZURE_STORAGE_PROTOCOL": "http",
		"DOCKER_CONFIG": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	return map[string]string{
		"s3://models/m": "AWS_ACCESS_KEY_ID", "gs://models/m": "GOOGLE_APPLICATION_CREDENTIALS",
		"azblob://models/m": "AZURE_STORAGE_KEY", "oci://" + host + "/models/m:v1": "docker login",
	}
}

func TestWhatAProviderAnswersIsToldByItsReason(t *testing.T) {
	var status, asked atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(int(status.Load()))
	})
	for uri, remedy := range theirs(t, server.URL) {
		for code, reason := range map[int]string{
			401: fetchapi.ReasonAccessDenied, 403: fetchapi.ReasonAccessDenied, 404: fetchapi.ReasonNotFound, 418: fetchapi.ReasonInvalid,
			429: fetchapi.ReasonUnavailable, 500: fetchapi.ReasonUnavailable, 503: fetchapi.ReasonUnavailable,
		} {
			what := fmt.Sprintf("%s: %d", uri, code)
			status.Store(int64(code))
			asked.Store(0)
			_, err := source(t, uri, options).Resolve(t.Context())
			require.Error(t, err, what)
			assert.Equal(t, reason, reasonOf(t, err), "%s: %v", what, err)
			temporary, again := errors.AsType[*TemporaryError](err)
			assert.Equal(t, reason == fetchapi.ReasonUnavailable, again, what)
			if again {
				assert.Equal(t, 7*time.Second, temporary.After, what)
			}
			if reason == fetchapi.ReasonAccessDenied {
				assert.Contains(t, err.Error(), remedy, what)
			}
			assert.NotContains(t, err.Error(), "hidden", what)
			assert.EqualValues(t, 1, asked.Load(), "%s: the library does not try again by itself", what)
		}
	}
}

func TestAProviderThatIsNotThereOrSilentIsToldInWords(t *testing.T) {
	gone := serve(t, nil)
	gone.Close()
	for uri := range theirs(t, gone.URL) {
		_, err := source(t, uri, options).Resolve(t.Context())
		require.Error(t, err, uri)
		assert.Equal(t, fetchapi.ReasonUnavailable, reasonOf(t, err), "%s: %v", uri, err)
		assert.NotContains(t, err.Error(), "hidden", uri)
		_, again := errors.AsType[*TemporaryError](err)
		assert.True(t, again, uri)
	}
	hangs := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	for uri := range theirs(t, hangs.URL) {
		_, err := source(t, uri, Options{Stall: 300 * time.Millisecond}).Resolve(t.Context())
		require.ErrorContains(t, err, "sent nothing for too long", uri)
		assert.NotContains(t, err.Error(), "hidden", uri)
	}
}

func TestABucketsAddressIsAFoldersName(t *testing.T) {
	for _, uri := range []string{"s3://m/a/../b", "s3://m/a//b", "s3://m/./a", "gs://m/a/..", "azblob://m/%ff", "s3://m/a%00"} {
		_, err := New(uri, options)
		require.ErrorContains(t, err, "names no folder of a bucket", uri)
	}
	_, err := New("s3:///a", options)
	require.ErrorContains(t, err, "names no bucket")
	for uri, remedy := range theirs(t, "http://127.0.0.1:1") {
		_, err := New(uri, Options{Stall: options.Stall, Token: "secret"})
		require.ErrorContains(t, err, "a token can be used only for https and the hub")
		require.ErrorContains(t, err, remedy)
	}
}

// objects is a bucket with one object, m/weights, and a registry with one artifact of
// one layer, that answer each as their provider does. Real servers are pulled from in
// test/modelsources; this one misbehaves.
type objects struct {
	content string
	tag     string // of the content
	listed  string // the tag that lists have; empty: that of the content
	date    string // of the content; empty: as it is listed
	heeds   bool   // which content is asked for
	send    func(w http.ResponseWriter, r *http.Request, content string)

	asked atomic.Int64 // for the content
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	listed := cmp.Or(o.listed, o.tag)
	layer := digest.FromString(o.content)
	switch {
	case q.Get("list-type") == "2":
		_, _ = fmt.Fprintf(w, `<ListBucketResult><Contents><Key>m/weights</Key><LastModified>2026-01-02T03:04:05Z</LastModified><ETag>"%s"</ETag><Size>%d</Size></Contents></ListBucketResult>`, listed, len(o.content))
	case q.Get("comp") == "list":
		w.Header().Set("Content-Type", "application/xml")
		_, _ = fmt.Fprintf(w, `<EnumerationResults ContainerName="models"><Blobs><Blob><Name>m/weights</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob></Blobs></EnumerationResults>`, listed, len(o.content))
	case strings.HasSuffix(r.URL.Path, "/models/o"):
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items": [{"name": "m/weights", "bucket": "models", "size": "%d", "generation": "%s", "updated": "2026-01-02T03:04:05Z"}]}`, len(o.content), listed)
	case strings.Contains(r.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		_, _ = fmt.Fprintf(w, `{"schemaVersion": 2, "layers": [{"digest": "%s", "size": %d, "annotations": {"org.opencontainers.image.title": "weights"}}]}`, layer, len(o.content))
	default:
		o.asked.Add(1)
		if span := r.Header.Get("X-Ms-Range"); span != "" { // which Azure takes in its place
			r.Header.Set("Range", span)
		}
		if condition := r.Header.Get("If-Match"); o.heeds && condition != "" && condition != `"`+o.tag+`"` {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		if generation := q.Get("generation"); o.heeds && generation != "" && generation != o.tag {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Last-Modified", cmp.Or(o.date, "Fri, 02 Jan 2026 03:04:05 GMT"))
		w.Header().Set("ETag", `"`+o.tag+`"`)
		w.Header().Set("X-Goog-Generation", o.tag)
		o.send(w, r, o.content)
	}
}

func properly(w http.ResponseWriter, r *http.Request, content string) {
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

// weights serves an object, and gives its sources by their schemes.
func weights(t *testing.T, o *objects, options Options) map[string]Source {
	t.Helper()
	o.content, o.tag = strings.Repeat("weights.", 1000), "1"
	server := serve(t, o.ServeHTTP)
	sources := map[string]Source{}
	for uri := range theirs(t, server.URL) {
		s := source(t, uri, options)
		m, err := s.Resolve(t.Context())
		require.NoError(t, err, uri)
		require.Len(t, m.Files, 1, uri)
		require.Equal(t, "weights", m.Files[0].Path)
		require.EqualValues(t, 8000, m.Files[0].Size)
		scheme, _, _ := strings.Cut(uri, ":")
		sources[scheme] = s
	}
	return sources
}

func TestAnObjectIsReadFromAnOffsetOn(t *testing.T) {
	o := &objects{send: properly}
	for scheme, s := range weights(t, o, options) {
		for _, offset := range []int64{0, 5000} {
			stream, err := s.Open(t.Context(), 0, offset)
			require.NoError(t, err, scheme)
			assert.Equal(t, offset, stream.Offset, scheme)
			assert.EqualValues(t, 8000, stream.Size, scheme)
			text, err := io.ReadAll(stream)
			require.NoError(t, err, scheme)
			require.NoError(t, stream.Close())
			assert.True(t, o.content[offset:] == string(text), scheme)
		}
	}
	assert.EqualValues(t, 8, o.asked.Load(), "each once")
}

func TestAnObjectThatIsReplacedWhileItIsFetchedIsSeen(t *testing.T) {
	o := &objects{send: properly}
	sources := weights(t, o, options)
	o.tag = "2"
	for _, o.heeds = range []bool{true, false} {
		for scheme, s := range sources {
			_, err := s.Open(t.Context(), 0, 5000)
			if scheme == "oci" { // a layer is named by its hash
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, ErrChanged, "%s, by a server that heeds what is asked for: %t", scheme, o.heeds)
		}
	}
}

// The date of an object may be that of a file, which programs set.
func TestAnObjectWithoutAStrongTagIsBegunAnew(t *testing.T) {
	old, young := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Now().UTC().Truncate(time.Second)
	for name, c := range map[string]struct {
		tag            string
		listed, answer time.Time
	}{
		"no tag, no date":        {"", old, time.Time{}},
		"a weak tag, no date":    {"<ETag>W/&quot;1&quot;</ETag>", old, time.Time{}},
		"no tag, a young date":   {"", young, young},
		"no tag, another date":   {"", young, old},
		"no tag, an old date":    {"", old, old},
		"a weak tag, an old one": {"<ETag>W/&quot;1&quot;</ETag>", old, old},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("list-type") == "2" {
					_, _ = fmt.Fprintf(w, `<ListBucketResult><Contents><Key>m/weights</Key><LastModified>%s</LastModified>%s<Size>100</Size></Contents></ListBucketResult>`, c.listed.Format(time.RFC3339), c.tag)
					return
				}
				assert.Empty(t, r.Header.Get("If-Match"), "which compares strong tags alone")
				w.Header().Set("ETag", `W/"1"`)
				http.ServeContent(w, r, "", c.answer, io.NewSectionReader(zeros{}, 0, 100))
			})
			theirs(t, server.URL)
			s := source(t, "s3://models/m", options)
			_, err := s.Resolve(t.Context())
			require.NoError(t, err)
			stream, err := s.Open(t.Context(), 0, 40)
			require.NoError(t, err)
			require.NoError(t, stream.Close())
			assert.Zero(t, stream.Offset)
			assert.False(t, s.Resumes())
		})
	}
}

// Servers that are compatible with S3 may have other tags in lists than in answers.
func TestAServerWhoseListsHaveOtherTagsCanBeRead(t *testing.T) {
	o := &objects{send: properly, listed: "9"}
	s := weights(t, o, options)["s3"]
	for _, o.heeds = range []bool{true, false} {
		for range 2 {
			stream, err := s.Open(t.Context(), 0, 5000)
			require.NoError(t, err)
			assert.EqualValues(t, 5000, stream.Offset, "the list has the same tag as before")
			text, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.NoError(t, stream.Close())
			assert.True(t, o.content[5000:] == string(text))
		}
	}
	o.date = "Fri, 02 Jan 2026 03:04:06 GMT"
	_, err := s.Open(t.Context(), 0, 0)
	require.ErrorIs(t, err, ErrChanged)
	o.date, o.content = "", "shorter"
	_, err = s.Open(t.Context(), 0, 0)
	require.ErrorIs(t, err, ErrChanged)
}

func TestAnEndpointThatIsNoAddressIsRefusedAtOnce(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Run(name, func(t *testing.T) {
			theirs(t, "http://127.0.0.1:1")
			t.Setenv(name, "minio:9000")
			_, err := source(t, "s3://models/m", options).Resolve(t.Context())
			require.ErrorContains(t, err, "write it as https://host:9000")
			assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
		})
	}
}

// partly answers questions for a part by itself, and others as a server should.
func partly(part func(w http.ResponseWriter, content string)) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, content string) {
		if r.Header.Get("Range") == "" {
			properly(w, r, content)
			return
		}
		part(w, content)
	}
}

func TestAPartThatCannotBeHadIsBegunAnew(t *testing.T) {
	for name, part := range map[string]func(w http.ResponseWriter, content string){
		"another part": func(w http.ResponseWriter, content string) {
			w.Header().Set("Content-Range", "bytes 1-7999/8000")
			w.Header().Set("Content-Length", "7999")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, content[1:])
		},
		"416": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Range", "bytes */8000")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		},
		"200":              func(w http.ResponseWriter, content string) { _, _ = io.WriteString(w, content) },
		"200, and no name": func(w http.ResponseWriter, content string) { w.Header().Del("ETag"); _, _ = io.WriteString(w, content) },
	} {
		t.Run(name, func(t *testing.T) {
			o := &objects{send: partly(part)}
			sources := weights(t, o, options)
			server := serve(t, o.ServeHTTP)
			web := source(t, server.URL+"/weights", options)
			_, err := web.Resolve(t.Context())
			require.NoError(t, err)
			sources["https"] = web
			for scheme, s := range sources {
				stream, err := s.Open(t.Context(), 0, 5000)
				require.NoError(t, err, scheme)
				assert.Zero(t, stream.Offset, scheme)
				text, err := io.ReadAll(stream)
				require.NoError(t, err, scheme)
				require.NoError(t, stream.Close(), scheme)
				assert.True(t, o.content == string(text), scheme)
			}
		})
	}
}

func TestAPartThatNobodyAskedForIsRefused(t *testing.T) {
	o := &objects{send: func(w http.ResponseWriter, _ *http.Request, content string) {
		w.Header().Set("Content-Range", "bytes 1-7999/8000")
		w.Header().Set("Content-Length", "7999")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, content[1:])
	}}
	for scheme, s := range weights(t, o, options) {
		_, err := s.Open(t.Context(), 0, 0)
		require.ErrorContains(t, err, "asked for the bytes from 0 on", scheme)
	}
}

func TestAnObjectWithoutBytesThatIsAFolderIsNoFile(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult>")
		for _, name := range []string{"empty", "sub", "sub-x", "sub/deep", "sub/deep/config.json"} {
			_, _ = fmt.Fprintf(w, `<Contents><Key>m/%s</Key><LastModified>2026-01-02T03:04:05Z</LastModified><ETag>"1"</ETag><Size>0</Size></Contents>`, name)
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	})
	theirs(t, server.URL)
	m, err := source(t, "s3://models/m", options).Resolve(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Check())
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Path)
	}
	assert.Equal(t, []string{"empty", "sub-x", "sub/deep/config.json"}, names)
}

func TestAnAnswerThatLeavesOutWhatLibrariesTrustInIsRefused(t *testing.T) {
	for uri := range theirs(t, "") {
		if strings.HasPrefix(uri, "oci:") {
			continue
		}
		for _, list := range []string{
			`<ListBucketResult><Contents></Contents></ListBucketResult>`, `<EnumerationResults><Blobs><Blob></Blob></Blobs></EnumerationResults>`,
			`{"items": [{}]}`, `{"items": [null]}`, `{"items": 1}`, "[", "",
		} {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })
			theirs(t, server.URL)
			m, err := source(t, uri, options).Resolve(t.Context())
			if err == nil {
				err = m.Check()
			}
			require.Error(t, err, "%s: %s", uri, list)
		}
	}
	o := &objects{send: func(w http.ResponseWriter, _ *http.Request, content string) {
		for _, name := range []string{"Last-Modified", "ETag", "X-Goog-Generation"} {
			w.Header().Del(name)
		}
		_, _ = io.WriteString(w, content)
	}}
	for scheme, s := range weights(t, o, options) {
		stream, err := s.Open(t.Context(), 0, 0)
		if err == nil {
			require.NoError(t, stream.Close(), scheme)
		}
	}
}

func TestAListThatDoesNotEndIsLeft(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	ctx, call := newCall(t.Context(), "")
	call.bounded = true
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := newNoting(options.Stall).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	assert.LessOrEqual(t, n, int64(maxListing))
	err = call.error(ctx, err)
	require.ErrorContains(t, err, "more than the limit of")
	assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
}

func TestWhoHasNoCredentialAsksAsAnybodyMay(t *testing.T) {
	var seen []string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusForbidden)
	})
	for uri := range theirs(t, server.URL) {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN"} {
			t.Setenv(name, "")
		}
		t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
		seen = nil
		_, err := source(t, uri, options).Resolve(t.Context())
		assert.Equal(t, fetchapi.ReasonAccessDenied, reasonOf(t, err), uri)
		assert.Equal(t, []string{""}, seen, uri)
	}
}

func TestACredentialThatIsNamedAndCannotBeHadIsNotDoneWithout(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the bucket was asked") })
	theirs(t, server.URL)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_REGION": "us-east-1",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "/none", "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader",
	} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o600))
	t.Setenv("DOCKER_CONFIG", dir)
	for uri, says := range map[string]string{"s3://models/m": "cannot get the credential", "oci://127.0.0.1:1/m": "cannot read the credential"} {
		s, err := New(uri, options)
		if err == nil {
			_, err = s.Resolve(t.Context())
		}
		require.ErrorContains(t, err, says)
		assert.Equal(t, fetchapi.ReasonAccessDenied, reasonOf(t, err))
	}
}

func TestABucketOfAnotherRegionIsToldWithItsRegion(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
		w.WriteHeader(http.StatusMovedPermanently)
	})
	theirs(t, server.URL)
	_, err := source(t, "s3://models/m", options).Resolve(t.Context())
	require.ErrorContains(t, err, "the region eu-west-1: set AWS_REGION")
	assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
}

func TestACredentialOfABucketGoesNowhereElse(t *testing.T) {
	var elsewhere []http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header)
		w.WriteHeader(http.StatusNotFound)
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token": "hidden", "token_type": "Bearer", "expires_in": 3600}`)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	theirs(t, home.URL)
	t.Setenv("AWS_SESSION_TOKEN", "hidden")
	_, err := source(t, "s3://models/m", options).Resolve(t.Context())
	require.Error(t, err)

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "reader@project", "token_uri": home.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "account.json")
	require.NoError(t, os.WriteFile(file, account, 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	calls, err := gcsCalls(t.Context(), newNoting(options.Stall), nil)
	require.NoError(t, err)
	resp, err := calls.Get(home.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())

	for _, header := range elsewhere {
		assert.Empty(t, header.Get("Authorization"))
		assert.Empty(t, header.Get("X-Amz-Security-Token"))
	}
}

func TestARegistryLeadsToNothingThatIsNotEncrypted(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"its token service": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://registry.invalid/token",service="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://registry.invalid/manifest", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, answer)
			theirs(t, server.URL)
			_, err := source(t, "oci://"+strings.TrimPrefix(server.URL, "http://")+"/models/m", options).Resolve(t.Context())
			require.ErrorContains(t, err, "is not encrypted")
		})
	}
}

func TestAServerThatKnowsNoPartsSendsFromTheBeginning(t *testing.T) {
	o := &objects{send: func(w http.ResponseWriter, _ *http.Request, content string) { _, _ = io.WriteString(w, content) }}
	for scheme, s := range weights(t, o, options) {
		stream, err := s.Open(t.Context(), 0, 5000)
		require.NoError(t, err, scheme)
		assert.Zero(t, stream.Offset, scheme)
		text, err := io.ReadAll(stream)
		require.NoError(t, err, scheme)
		require.NoError(t, stream.Close())
		assert.Equal(t, o.content, string(text), scheme)
	}
}

func TestABodyThatBreaksOffIsTriedAgainByNobodyButTheFetch(t *testing.T) {
	for name, send := range map[string]func(w http.ResponseWriter, r *http.Request, content string){
		"a cut": func(w http.ResponseWriter, _ *http.Request, content string) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = io.WriteString(w, content[:3000])
		},
		"a silence": func(w http.ResponseWriter, r *http.Request, content string) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = io.WriteString(w, content[:3000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &objects{send: send}
			for scheme, s := range weights(t, o, Options{Stall: 500 * time.Millisecond}) {
				o.asked.Store(0)
				stream, err := s.Open(t.Context(), 0, 0)
				require.NoError(t, err, scheme)
				text, err := io.ReadAll(stream)
				require.NoError(t, stream.Close(), scheme)
				assert.Len(t, text, 3000, scheme)
				var temporary *TemporaryError
				require.ErrorAs(t, err, &temporary, scheme)
				assert.EqualValues(t, 1, o.asked.Load(), scheme)
			}
		})
	}
}

func TestAManifestOfARegistryThatIsNoModelIsRefused(t *testing.T) {
	layer := func(kind, annotations string) string {
		return fmt.Sprintf(`{"mediaType": "%s", "digest": "sha256:%s", "size": 1, "annotations": {%s}}`, kind, strings.Repeat("a", 64), annotations)
	}
	const titled = `"org.opencontainers.image.title": "model"`
	for name, c := range map[string]struct{ kind, layers, says string }{
		"an image":                  {"", layer("application/vnd.oci.image.layer.v1.tar+gzip", ""), "the layers of this artifact are not files"},
		"an archive":                {"", layer("application/vnd.cncf.model.weight.v1.tar", titled), "is an archive"},
		"a folder of ORAS":          {"", layer("application/x", titled+`, "io.deis.oras.content.unpack": "true"`), "is an archive"},
		"an index":                  {ocispec.MediaTypeImageIndex, "", "an index of several artifacts"},
		"a name that is not UTF-8":  {"", layer("application/x", "\"org.opencontainers.image.title\": \"a\xff\""), "not UTF-8"},
		"another hash":              {"", `{"digest": "sha512:` + strings.Repeat("a", 128) + `", "annotations": {` + titled + `}}`, "knows only sha256"},
		"a type that is no archive": {"", layer("application/x.start", titled), ""},
		"ModelPack":                 {"", layer("application/vnd.cncf.model.weight.v1.raw", `"org.cncf.model.filepath": "model"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", cmp.Or(c.kind, ocispec.MediaTypeImageManifest))
				_, _ = fmt.Fprintf(w, `{"schemaVersion": 2, "layers": [%s]}`, c.layers)
			})
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			m, err := source(t, "oci://"+strings.TrimPrefix(server.URL, "http://")+"/models/m", options).Resolve(t.Context())
			if c.says == "" {
				require.NoError(t, err)
				assert.Equal(t, "model", m.Files[0].Path)
				assert.True(t, strings.HasSuffix(m.URI, "/models/m:latest"))
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A registry may send its layers from elsewhere, which sees no credential.
func TestARegistrysCredentialGoesToTheRegistryAlone(t *testing.T) {
	o := &objects{content: "weights", tag: "1", send: properly}
	var atHome, elsewhere []string
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		o.ServeHTTP(w, r)
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		atHome = append(atHome, r.Header.Get("Authorization"))
		switch {
		case r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, other.URL+"/cdn?signature=hidden", http.StatusTemporaryRedirect)
		default:
			o.ServeHTTP(w, r)
		}
	})
	host := strings.TrimPrefix(home.URL, "http://")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths": {"%s": {"auth": "b3VyczpzZWNyZXQ="}}}`, host), 0o600))
	t.Setenv("DOCKER_CONFIG", dir)
	s := source(t, "oci://"+host+"/models/m:v1", options)
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	stream, err := s.Open(t.Context(), 0, 3)
	require.NoError(t, err)
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	assert.Equal(t, "ghts", string(text))
	assert.Equal(t, []string{"", "Basic b3VyczpzZWNyZXQ=", "Basic b3VyczpzZWNyZXQ="}, atHome)
	assert.Equal(t, []string{""}, elsewhere)

	other.Close()
	_, err = s.Open(t.Context(), 0, 0)
	require.ErrorContains(t, err, "does not answer")
	assert.NotContains(t, err.Error(), "hidden")
}

func TestARegistrysTokenIsThatOfItsTokenService(t *testing.T) {
	o := &objects{content: "weights", tag: "1", send: properly}
	var asked []string
	home := serve(t, nil)
	home.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			user, password, _ := r.BasicAuth()
			asked = append(asked, user+" "+r.URL.Query().Get("scope"))
			if user != "" && password != "secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = fmt.Fprintf(w, `{"token": "for %s"}`, user)
		case r.Header.Get("Authorization") != "Bearer for ours":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry"`, home.URL))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			o.ServeHTTP(w, r)
		}
	})
	host := strings.TrimPrefix(home.URL, "http://")
	resolve := func(login string) error {
		dir := t.TempDir()
		if login != "" {
			auth := base64.StdEncoding.EncodeToString([]byte(login))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths": {"%s": {"auth": "%s"}}}`, host, auth), 0o600))
		}
		t.Setenv("DOCKER_CONFIG", dir)
		_, err := source(t, "oci://"+host+"/models/m:v1", options).Resolve(t.Context())
		return err
	}
	require.NoError(t, resolve("ours:secret"))
	assert.Equal(t, []string{"ours repository:models/m:pull"}, asked)
	for _, login := range []string{"", "ours:wrong"} {
		err := resolve(login)
		require.ErrorContains(t, err, "docker login "+host, login)
		assert.Equal(t, fetchapi.ReasonAccessDenied, reasonOf(t, err))
		assert.NotContains(t, err.Error(), "wrong")
	}
}
