package modelsource

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// options are those of most tests. No source of theirs is to be left.
var options = Options{Stall: 30 * time.Second}

func source(t *testing.T, uri string, o Options) Source {
	t.Helper()
	s, err := New(uri, o)
	require.NoError(t, err)
	return s
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var e *fetchapi.Error
	require.ErrorAs(t, err, &e)
	return e.Reason
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func TestAnAddressThatCannotBeMeantIsRefused(t *testing.T) {
	for uri, says := range map[string]string{
		"ftp://host/m":             "scheme",
		"model":                    "scheme",
		"http://example.com/m":     "not encrypted",
		"https:///m":               "names no host",
		"https://user:pw@host/m":   "user or a password",
		"https://host/m?token=abc": "query",
		"file://host/m":            "this machine",
		"file:relative":            "this machine",
		"hf://":                    "hf://org/name",
		"hf://a/b/c":               "hf://org/name",
		"hf://../..":               "hf://org/name",
		"hf://a/b@":                "hf://org/name",
		"hf://a--b/c":              "hf://org/name",
		"hf://a/b@../../x":         "hf://org/name",
		"https://host/%zz":         "cannot read",
		"https://us:hidden@h/%zz":  "cannot read",
		"azblob://c/m?sig=hidden":  "query",
	} {
		_, err := New(uri, options)
		require.ErrorContains(t, err, says, uri)
		assert.NotContains(t, err.Error(), "hidden")
		assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
	}
}

func TestAFolderIsReadWithinItsBounds(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "m", "blobs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m", "blobs", "x"), []byte("weights"), 0o600))
	require.NoError(t, os.Symlink("blobs/x", filepath.Join(dir, "m", "model.safetensors")))
	s := source(t, "file://"+dir+"/m", options)
	m, err := s.Resolve(t.Context())
	require.NoError(t, err)
	require.Len(t, m.Files, 2)
	require.NotEmpty(t, m.Revision)
	stream, err := s.Open(t.Context(), 1, 3)
	require.NoError(t, err)
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	assert.Equal(t, "ghts", string(text))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "m", "blobs", "x"), []byte("other"), 0o600))
	_, err = s.Open(t.Context(), 1, 0)
	require.ErrorIs(t, err, ErrChanged)
	again, err := s.Resolve(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, m.Revision, again.Revision)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600))
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "m", "leak")))
	_, err = s.Resolve(t.Context())
	require.ErrorContains(t, err, "leak without leaving its folder")
	_, err = source(t, "file:///no/such/folder", options).Resolve(t.Context())
	assert.Equal(t, fetchapi.ReasonNotFound, reasonOf(t, err))
}

func TestAFileThatIsWrittenToWhileItIsReadIsNotMixed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	for what, change := range map[string]func(f *os.File) error{
		"nothing":     func(*os.File) error { return nil },
		"overwritten": func(f *os.File) error { _, err := f.WriteAt([]byte("NEW!"), 4); return err },
		"longer":      func(f *os.File) error { _, err := f.WriteAt([]byte("new"), 8); return err },
		"shorter":     func(f *os.File) error { return f.Truncate(5) },
		"overwritten, its time set back": func(f *os.File) error {
			_, err := f.WriteAt([]byte("NEW!"), 4)
			return errors.Join(err, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
		},
	} {
		require.NoError(t, os.WriteFile(path, []byte("old, old"), 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
		s := source(t, "file://"+path, options)
		_, err := s.Resolve(t.Context())
		require.NoError(t, err)
		stream, err := s.Open(t.Context(), 0, 1)
		require.NoError(t, err)
		_, err = io.ReadFull(stream, make([]byte, 3))
		require.NoError(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, errors.Join(change(f), f.Close()))
		rest, err := io.ReadAll(stream)
		if what == "nothing" {
			require.NoError(t, err)
			assert.Equal(t, " old", string(rest))
		} else {
			require.ErrorIs(t, err, ErrChanged, what)
		}
		require.NoError(t, stream.Close())
	}
}

// Two versions of a file that were written within the resolution of the file system's times
// have the same name, size and time.
func TestAFolderIsReadOnceAChangeWouldGetAnotherTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m")
	for resolution, written := range map[time.Duration]time.Time{coarse: time.Now().Truncate(time.Second), fine: time.Now().Add(time.Nanosecond)} {
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		require.NoError(t, os.Chtimes(path, written, written))
		_, err := source(t, "file://"+path, options).Resolve(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(written), resolution)
	}
	soon := time.Now().Truncate(time.Second).Add(time.Second)
	require.NoError(t, os.Chtimes(path, soon, soon))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := source(t, "file://"+path, options).Resolve(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAPipeInTheFilesPlaceIsNotWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	s := source(t, "file://"+path, options)
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err = s.Open(t.Context(), 0, 0)
	require.ErrorIs(t, err, ErrChanged)
}

func TestACredentialGoesToItsOwnHostAlone(t *testing.T) {
	var atHome, elsewhere, back []string
	home := serve(t, nil)
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		http.Redirect(w, r, home.URL+"/back", http.StatusFound)
	})
	home.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			back = append(back, r.Header.Get("Authorization"))
			_, _ = io.WriteString(w, "weights")
			return
		}
		atHome = append(atHome, r.Header.Get("Authorization"))
		http.Redirect(w, r, other.URL+"/cdn", http.StatusFound)
	})
	s := source(t, home.URL+"/m", Options{Stall: options.Stall, Token: "secret"})
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"Bearer secret"}, atHome)
	assert.Equal(t, []string{""}, elsewhere)
	assert.Equal(t, []string{"Bearer secret"}, back)
}

func TestWhatAServerAnswersIsToldByItsReason(t *testing.T) {
	for status, reason := range map[int]string{
		401: fetchapi.ReasonAccessDenied, 403: fetchapi.ReasonAccessDenied,
		404: fetchapi.ReasonNotFound, 410: fetchapi.ReasonNotFound,
		418: fetchapi.ReasonInvalid,
		429: fetchapi.ReasonUnavailable, 500: fetchapi.ReasonUnavailable, 503: fetchapi.ReasonUnavailable,
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
		_, err := source(t, server.URL+"/m", options).Resolve(t.Context())
		assert.Equal(t, reason, reasonOf(t, err), status)
		temporary, again := errors.AsType[*TemporaryError](err)
		assert.Equal(t, reason == fetchapi.ReasonUnavailable, again, status)
		if again {
			assert.Equal(t, 7*time.Second, temporary.After)
		}
	}
}

func TestALimitThatIsUsedUpIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		after  time.Duration
	}{
		"as the hub says it":      {http.Header{"Ratelimit": {`"api";r=0;t=55`}, "Ratelimit-Policy": {`"fixed window";"api";q=500;w=300`}}, 55 * time.Second},
		"several":                 {http.Header{"Ratelimit": {`"api";r=0;t=5, "pages";t=70;r=0`, `"more"; r=0; t=6`}}, 70 * time.Second},
		"some are left":           {http.Header{"Ratelimit": {`"api";r=3;t=55`}}, 0},
		"as it was said before":   {http.Header{"Ratelimit-Reset": {"40"}}, 40 * time.Second},
		"Retry-After comes first": {http.Header{"Ratelimit": {`"api";r=0;t=55`}, "Retry-After": {"7"}}, 7 * time.Second},
		"nonsense":                {http.Header{"Ratelimit": {`;;r=0;t=-5,t=x;r=0,=`}}, 0},
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), c.header)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		_, err := source(t, server.URL+"/m", options).Resolve(t.Context())
		var temporary *TemporaryError
		require.ErrorAs(t, err, &temporary, name)
		assert.Equal(t, c.after, temporary.After, name)
	}
}

func TestNothingCompressedIsTakenForTheFile(t *testing.T) {
	compresses := "gzip"
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", compresses)
		_, _ = io.WriteString(w, "compressed")
	})
	_, err := source(t, server.URL+"/m", options).Resolve(t.Context())
	require.ErrorContains(t, err, "encoded as gzip although it was asked not to")
	assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
	_, err = source(t, server.URL+"/m.tar.gz", options).Resolve(t.Context())
	require.NoError(t, err, "the file itself is compressed")
	compresses = "identity"
	_, err = source(t, server.URL+"/m", options).Resolve(t.Context())
	require.NoError(t, err)
}

func TestAPageForPeopleIsNoModel(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "Text/HTML; charset=utf-8")
		_, _ = io.WriteString(w, "<html>")
	})
	_, err := source(t, server.URL+"/org/name", options).Resolve(t.Context())
	require.ErrorContains(t, err, "is a page for people, and not a file")
	_, err = source(t, server.URL+"/model.html", options).Resolve(t.Context())
	require.NoError(t, err)
}

func TestARedirectOutOfTheWebIsNotTriedAgain(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(http.StatusFound)
	})
	_, err := source(t, server.URL+"/m", options).Resolve(t.Context())
	assert.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
	assert.ErrorContains(t, err, "only http and https are allowed")
}

func TestASourceThatIsSilentIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every time.Duration
		sends string
	}{"a hang": {time.Hour, "a"}, "a slow trickle": {20 * time.Millisecond, "a"}, "a crawl": {100 * time.Millisecond, strings.Repeat("a", 1500)}} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "10000000")
				tick := time.NewTicker(c.every)
				defer tick.Stop()
				for {
					if _, err := io.WriteString(w, c.sends); err != nil {
						return
					}
					w.(http.Flusher).Flush()
					select {
					case <-tick.C:
					case <-r.Context().Done():
						return
					}
				}
			})
			s := source(t, server.URL+"/m", Options{Stall: 3 * time.Second})
			_, err := s.Resolve(t.Context())
			require.NoError(t, err)
			stream, err := s.Open(t.Context(), 0, 0)
			require.NoError(t, err)
			text, err := io.ReadAll(stream)
			require.NoError(t, stream.Close())
			assert.Equal(t, byte('a'), text[0])
			require.ErrorContains(t, err, "sent nothing for too long")
			var temporary *TemporaryError
			require.ErrorAs(t, err, &temporary)

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = s.Open(ctx, 0, 0)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// A reader that writes to a slow disk does not have its source cut off.
func TestAReaderMayTakeItsTime(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "weights") })
	s := source(t, server.URL+"/m", Options{Stall: 3 * time.Second})
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	stream, err := s.Open(t.Context(), 0, 0)
	require.NoError(t, err)
	time.Sleep(4 * time.Second)
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	assert.Equal(t, "weights", string(text))
}

func TestAServerWhoseCertificateNobodyVouchesForIsNotTriedAgain(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	_, err := source(t, server.URL+"/m", options).Resolve(t.Context())
	require.ErrorContains(t, err, "cannot verify the certificate of the source")
	var temporary *TemporaryError
	require.NotErrorAs(t, err, &temporary)
}

func TestAServerThatNamesNoVersionIsReadFromTheBeginning(t *testing.T) {
	now := time.Now().UTC().Format(http.TimeFormat)
	for name, header := range map[string]http.Header{
		"nothing":                  {},
		"a weak tag":               {"Etag": {`W/"1"`}},
		"a date within its second": {"Last-Modified": {now}, "Date": {now}},
		"a date that is young":     {"Last-Modified": {now}, "Date": {time.Now().UTC().Add(dateAge - 2*time.Second).Format(http.TimeFormat)}},
		"a date without a clock":   {"Last-Modified": {"Fri, 02 Jan 2026 03:04:05 GMT"}, "Date": nil},
		"a date that is none":      {"Last-Modified": {"yesterday"}},
		"an old date":              {"Last-Modified": {"Thu, 01 Jan 1980 00:00:00 GMT"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				maps.Copy(w.Header(), header)
				http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, 100))
			})
			s := source(t, server.URL+"/m", options)
			m, err := s.Resolve(t.Context())
			require.NoError(t, err)
			assert.Equal(t, name == "an old date", m.Revision != "")
			assert.False(t, s.Resumes())
			stream, err := s.Open(t.Context(), 0, 40)
			require.NoError(t, err)
			require.NoError(t, stream.Close())
			assert.Zero(t, stream.Offset)
		})
	}
}

// A date that is no strong validator shows all the same that a file has changed.
func TestAFileOfAYoungDateThatChangesIsSeen(t *testing.T) {
	then := time.Now().UTC()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", then, io.NewSectionReader(zeros{}, 0, 100))
	})
	s := source(t, server.URL+"/m", options)
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	then = then.Add(-2 * time.Second)
	_, err = s.Open(t.Context(), 0, 40)
	require.ErrorIs(t, err, ErrChanged)
}

// Servers may leave out of a part what If-Range has named.
func TestAPartNeedNotSayOfWhichVersionItIs(t *testing.T) {
	const seen = `"1"`
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Range") == seen {
			w.Header().Set("Content-Range", "bytes 40-99/100")
			w.WriteHeader(http.StatusPartialContent)
			return
		}
		w.Header().Set("ETag", seen)
		w.Header().Set("Content-Length", "100")
	})
	s := source(t, server.URL+"/m", options)
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	stream, err := s.Open(t.Context(), 0, 40)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	assert.EqualValues(t, 40, stream.Offset)
}

func TestAFileThatChangesAtTheServerIsNotMixed(t *testing.T) {
	tag := `"1"`
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, 100))
	})
	s := source(t, server.URL+"/m", options)
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	stream, err := s.Open(t.Context(), 0, 40)
	require.NoError(t, err)
	assert.EqualValues(t, 40, stream.Offset)
	assert.EqualValues(t, 100, stream.Size)
	require.NoError(t, stream.Close())
	tag = `"2"`
	_, err = s.Open(t.Context(), 0, 40)
	require.ErrorIs(t, err, ErrChanged)
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

func TestHostileListsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ list, says string }{
		"not JSON":       {"<html>", "as a list of files"},
		"not UTF-8":      {"{\"files\":[{\"path\":\"a\xff\"}]}", "not UTF-8"},
		"without a hash": {`{"files":[{"path":"a","size":1}]}`, "no sha256"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.list) })
			_, err := source(t, server.URL+"/m/", options).Resolve(t.Context())
			require.ErrorContains(t, err, c.says)
		})
	}
	endless := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.NewSectionReader(zeros{}, 0, maxAnswer+10))
	})
	_, err := source(t, endless.URL+"/m/", options).Resolve(t.Context())
	require.ErrorContains(t, err, "has more than")
}

func TestAFolderOfAClaimIsReadWithinTheClaim(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "config.json"), []byte("{}"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "in")))
	resolve := func(uri string) (*fetchapi.Manifest, error) {
		source, err := New(uri, Options{Claims: map[string]string{"c": dir}})
		if err != nil {
			return nil, err
		}
		return source.Resolve(t.Context())
	}
	for uri, is := range map[string]string{"pvc://c/a/": "pvc://c/a", "pvc://c/a/b/config.json": "pvc://c/a/b/config.json", "pvc://c/in": "pvc://c/in", "pvc://c/../a/b": "pvc://c/a/b"} {
		m, err := resolve(uri)
		require.NoError(t, err, uri)
		assert.Equal(t, is, m.URI)
		assert.Len(t, m.Files, 1)
	}
	for uri, says := range map[string]string{"pvc://c/out": "escapes", "pvc://c/out/secret": "escapes", "pvc://c/none": "no such file", "pvc://d/a": `"d" of pvc://d/a is not mounted here (mounted: c)`, "pvc:///a": "is not mounted here"} {
		_, err := resolve(uri)
		assert.ErrorContains(t, err, says, uri)
	}
}
