package fetchapi

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Credentials prove to a source who the caller is. They are values by the names of
// variables, such as HF_TOKEN. If a call gives some, modelfetch takes no credentials from
// its own environment or the files of its user. Printed or logged, they show no value.
type Credentials map[string]string

const redacted = "[credentials]"

func (Credentials) String() string { return redacted }

// GoString implements [fmt.GoStringer].
func (Credentials) GoString() string { return redacted }

// LogValue implements [slog.LogValuer].
func (Credentials) LogValue() slog.Value { return slog.StringValue(redacted) }

// variables are those of one scheme.
type variables struct {
	sets   [][]string // one of these sets is needed, and all of it
	beside []string   // optional variables
}

// taken are the variables that credentials consist of, by scheme. No variable with the
// address of a source is among them: a caller could name a server that lets every caller
// read.
var taken = map[string]variables{
	"hf":     {sets: [][]string{{"HF_TOKEN"}}},
	"s3":     {sets: [][]string{{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}}, beside: []string{"AWS_SESSION_TOKEN", "AWS_REGION"}},
	"gs":     {sets: [][]string{{"GOOGLE_APPLICATION_CREDENTIALS_JSON"}}},
	"azblob": {sets: [][]string{{"AZURE_STORAGE_KEY"}, {"AZURE_STORAGE_SAS_TOKEN"}, {"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"}}, beside: []string{"AZURE_STORAGE_ACCOUNT"}},
	"oci":    {sets: [][]string{{"DOCKER_AUTH_CONFIG"}}},
}

// DockerHosts are the hosts under which logins of Docker's own registry are stored. Docker
// login itself uses the first.
var DockerHosts = []string{"index.docker.io", "docker.io", "registry-1.docker.io"}

// looks are patterns for the values that become part of a host name. They keep a value from
// naming another host.
var looks = map[string]*regexp.Regexp{"AWS_REGION": regexp.MustCompile(`^[a-z0-9-]{1,63}$`), "AZURE_STORAGE_ACCOUNT": regexp.MustCompile(`^[a-z0-9]{3,24}$`)}

// Reasons why some variables of modelfetch's environment are no credentials.
const (
	sayWhere = "names the address of a source, which only the launcher's own environment may set"
	nameFile = "names a file of the launcher; give the content of the file as "
)

var notTaken = map[string]string{
	"HF_ENDPOINT": sayWhere, "AWS_ENDPOINT_URL": sayWhere, "AWS_ENDPOINT_URL_S3": sayWhere, "STORAGE_EMULATOR_HOST": sayWhere, "AZURE_STORAGE_DOMAIN": sayWhere,
	"AZURE_STORAGE_CONNECTION_STRING": sayWhere + "; give AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY instead",
	"GOOGLE_APPLICATION_CREDENTIALS":  nameFile + "GOOGLE_APPLICATION_CREDENTIALS_JSON",
	"DOCKER_CONFIG":                   nameFile + "DOCKER_AUTH_CONFIG",
}

// MaxCredentials is how many bytes credentials may have, names and values together.
const MaxCredentials = 64 << 10

// For returns the credentials for the source of an address, without those for other
// sources. The error says what is wrong and what would be right, and shows no value.
func (c Credentials) For(uri string) (Credentials, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	of, known := taken[scheme]
	if !known {
		return nil, fmt.Errorf("a source of the scheme %s takes no credentials; hf, s3, gs, azblob and oci do", scheme)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if size += len(name) + len(c[name]); size > MaxCredentials {
			return nil, fmt.Errorf("the credentials have more than %d bytes", MaxCredentials)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(taken)), func(v variables) bool { return v.has(name) }) {
			return nil, unknown(name, of, scheme)
		}
		if strings.TrimSpace(c[name]) == "" || !utf8.ValidString(c[name]) || strings.ContainsRune(c[name], 0) {
			return nil, fmt.Errorf("%s is empty, or is not text", name)
		}
		if is := looks[name]; is != nil && !is.MatchString(strings.TrimSpace(c[name])) {
			return nil, fmt.Errorf("%s is not valid: it must match %s", name, is)
		}
	}
	return of.pick(c, scheme)
}

// FromEnvironment returns the credentials in an environment for the source of an address;
// nil: there are none. [Credentials.For] checks whether they can be used.
func FromEnvironment(uri string, env func(name string) string) Credentials {
	scheme, _, _ := strings.Cut(uri, "://")
	of := taken[scheme]
	there, sets := Credentials{}, false
	for _, name := range append(slices.Concat(of.sets...), of.beside...) {
		if value := strings.TrimSpace(env(name)); value != "" {
			there[name] = value
			sets = sets || !slices.Contains(of.beside, name)
		}
	}
	if !sets {
		return nil
	}
	return there
}

// Takes returns the variables that the source of an address takes, as "A with B, or C".
func Takes(uri string) string {
	scheme, _, _ := strings.Cut(uri, "://")
	return taken[scheme].String()
}

// unknown returns the error for a variable that is not taken.
func unknown(name string, of variables, scheme string) error {
	if why := notTaken[name]; why != "" {
		return fmt.Errorf("%s is not taken: it %s", name, why)
	}
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return fmt.Errorf("%q is not known: %s:// takes %s", name, scheme, of)
}

// pick returns the variables of one scheme. It fails unless exactly one set is complete.
func (v variables) pick(c Credentials, scheme string) (Credentials, error) {
	var whole, begun []string // the sets, as people write them
	picked := Credentials{}
	for _, set := range v.sets {
		has := 0
		for _, name := range set {
			if value, ok := c[name]; ok {
				has++
				picked[name] = strings.TrimSpace(value)
			}
		}
		text := strings.Join(set, " with ")
		switch has {
		case 0:
		case len(set):
			whole = append(whole, text)
		default:
			begun = append(begun, text)
		}
	}
	switch {
	case len(begun) > 0:
		return nil, fmt.Errorf("%s:// takes %s together, but a part of that is missing", scheme, begun[0])
	case len(whole) == 0:
		return nil, fmt.Errorf("there are no credentials for %s://, which takes %s", scheme, v)
	case len(whole) > 1:
		return nil, fmt.Errorf("%s:// takes only one of %s; leave the others out", scheme, strings.Join(whole, " and "))
	}
	for _, name := range v.beside {
		if value, ok := c[name]; ok {
			picked[name] = strings.TrimSpace(value)
		}
	}
	return picked, nil
}

func (v variables) has(name string) bool {
	return slices.Contains(v.beside, name) || slices.ContainsFunc(v.sets, func(set []string) bool { return slices.Contains(set, name) })
}

// String is as "A with B, or C; beside it D".
func (v variables) String() string {
	var sets []string
	for _, set := range v.sets {
		sets = append(sets, strings.Join(set, " with "))
	}
	text := strings.Join(sets, ", or ")
	if len(v.beside) > 0 {
		text += "; beside it " + strings.Join(v.beside, ", ")
	}
	return text
}
