package modelref

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestANameMeansTheVersionThatTheTableSays(t *testing.T) {
	const digest = "sha256:aaaa"
	llama := Version{ID: "1234abcd", URI: "hf://org/llama", Revision: "c1", Refs: []string{"main", "v1"}}
	tagged := Version{URI: "hf://org/llama", Revision: "c2", Refs: []string{"v2"}}
	commit := Version{URI: "hf://org/llama", Revision: "c3"}
	for _, c := range []struct {
		name    Name
		version Version
		means   bool
	}{
		{Name{"org/llama", ""}, llama, true},
		{Name{"hf://org/llama", ""}, llama, true},
		{Name{"org/llama", "v1"}, llama, true},
		{Name{"org/llama", "c1"}, llama, true},
		{Name{"org/llama@v1", ""}, llama, true},
		{Name{"org/llama@v1", "v9"}, llama, true},
		{Name{"hf://org/llama@c1", ""}, llama, true},
		{Name{"1234abcd", ""}, llama, true},
		{Name{"org/llama", "v2"}, llama, false},
		{Name{"org/llama@v2", "v1"}, llama, false},
		{Name{"org/llam", ""}, llama, false},
		{Name{"org/llama2", ""}, llama, false},
		{Name{"s3://org/llama", ""}, llama, false},
		{Name{"", ""}, llama, false},
		{Name{"org/llama", ""}, tagged, false},
		{Name{"org/llama", "v2"}, tagged, true},
		{Name{"org/llama", ""}, commit, true},
		{Name{"", ""}, Version{}, false},
		{Name{"https://host/m@1", ""}, Version{URI: "https://host/m@1", Revision: "etag"}, true},
		{Name{"https://host/m/", ""}, Version{URI: "https://host/m", Revision: "etag"}, false},
		{Name{"oci://host:5000/m", ""}, Version{URI: "oci://host:5000/m:latest", Revision: digest}, true},
		{Name{"oci://host:5000/m:latest", ""}, Version{URI: "oci://host:5000/m", Revision: digest}, true},
		{Name{"oci://host:5000/m:v1", ""}, Version{URI: "oci://host:5000/m", Revision: digest}, false},
		{Name{"oci://host/m@" + digest, ""}, Version{URI: "oci://host/m@" + digest, Revision: digest}, true},
		{Name{"oci://host/m", ""}, Version{URI: "oci://host/m@" + digest, Revision: digest}, false},
		{Name{"s3://m/a/", ""}, Version{URI: "s3://m/a", Revision: "1"}, true},
		{Name{"s3://m/a", ""}, Version{URI: "s3://m/a/", Revision: "1"}, true},
		{Name{"s3://m/ab", ""}, Version{URI: "s3://m/a", Revision: "1"}, false},
		{Name{"file:///m/a/", ""}, Version{URI: "file:///m/a", Revision: "1"}, true},
	} {
		assert.Equal(t, c.means, c.name.Means(c.version), "%+v and %+v", c.name, c.version)
		if _, ours := c.name.Of(c.version.URI); ours {
			assert.Contains(t, c.name.Addresses(), Address(c.version.URI), "%+v", c.name)
		}
	}
}

func TestAFolderOfABucketIsInThoseAboveIt(t *testing.T) {
	assert.Equal(t, []Folder{{Name{"s3://m/a/b", "v"}, "c d"}, {Name{"s3://m/a", "v"}, "b/c d"}, {Name{"s3://m", "v"}, "a/b/c d"}}, Name{"s3://m/a/b/c%20d/", "v"}.Above())
	for _, none := range []string{"", "s3://m", "s3://", "org/llama", "hf://org/llama", "oci://host/m/n", "file:///a/b", "gs://m/%zz"} {
		assert.Empty(t, Name{Model: none}.Above(), none)
	}
}

func TestAFolderIsInAVersionThatIsAboveIt(t *testing.T) {
	kept := Version{URI: "s3://m/a", Revision: "1"}
	for name, in := range map[string]bool{"s3://m/a": true, "s3://m/a/b/c": true, "s3://m/ab": false, "s3://m": false, "org/a": false} {
		assert.Equal(t, in, Name{Model: name}.In(kept), name)
	}
}

func TestTheNameIsFoundAmongTheArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		name Name
	}{
		{nil, Name{}},
		{[]string{"org/llama"}, Name{"org/llama", ""}},
		{[]string{"org/llama", "--revision", "v1"}, Name{"org/llama", "v1"}},
		{[]string{"org/llama", "--revision=v1", "--port", "1"}, Name{"org/llama", "v1"}},
		{[]string{"--model", "org/llama"}, Name{"org/llama", ""}},
		{[]string{"--model=org/llama@v1", "--revision"}, Name{"org/llama@v1", ""}},
		{[]string{"--max-model-len", "4096"}, Name{}},
	} {
		assert.Equal(t, c.name, FromArgs(c.args), c.args)
	}
}
