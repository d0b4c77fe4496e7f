package sourcesecret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// byAccount takes the Secret of an account that has what the source at an address takes:
// it may list others, for registries of images or for other sources.
func (f Found) byAccount(uri string) Shown {
	var fits []Secret
	var says fetchapi.Credentials
	for _, s := range f.Secrets {
		said := s.says(uri)
		if said == nil {
			continue
		}
		if fits = append(fits, s); len(fits) > 1 && !maps.Equal(says, said) {
			return Shown{Of: f.account(), Reason: v1alpha1.ReasonSecretInvalid, Problem: fmt.Sprintf(
				"Secrets %s and %s, which %s lists, say different things of %s: list one of them, or name it by spec.credentials.secretRef", fits[0].Name, s.Name, f.account(), wanted(uri))}
		}
		says = said
	}
	switch {
	case len(fits) > 0:
		return fits[0].shown("Secret "+f.Namespace+"/"+fits[0].Name+" of "+f.account(), uri)
	case f.Runs:
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonAccountUsed, Note: f.lacks(uri) + ": the Job shows what it is given as that account"}
	default:
		return Shown{Of: f.account(), Reason: v1alpha1.ReasonSecretMissing, Problem: f.lacks(uri) + ": list one that has it among its secrets"}
	}
}

// lacks says what the Secrets of an account have not.
func (f Found) lacks(uri string) string {
	var names []string
	for _, s := range f.Secrets {
		name := s.Name
		if s.Version == "" {
			name += ", which is not there"
		}
		names = append(names, name)
	}
	if f.More > 0 {
		names = append(names, fmt.Sprintf("and %d more, which are not looked at", f.More))
	}
	if len(names) == 0 {
		return f.account() + " lists no Secret with " + wanted(uri)
	}
	return fmt.Sprintf("none of the Secrets that %s lists (%s) has %s", f.account(), strings.Join(names, "; "), wanted(uri))
}

// says is what a Secret has for the source at an address; nil: nothing.
func (s Secret) says(uri string) fetchapi.Credentials {
	has := s.variables()
	said := fetchapi.FromEnvironment(uri, func(name string) string { return has[name] })
	config, docker := said[dockerVariable]
	if !docker {
		return said
	}
	if login := loginOf(config, registryOf(uri)); login != "" {
		return fetchapi.Credentials{dockerVariable: login}
	}
	return nil
}

// wanted is what a source takes, in words.
func wanted(uri string) string {
	switch takes := fetchapi.Takes(uri); takes {
	case dockerVariable:
		return fmt.Sprintf("a login for %s in %s or %s", registryOf(uri), dockerVariable, DockerConfig)
	case "":
		return "what the source takes, which is nothing"
	default:
		return takes
	}
}

// registryOf is the host of a registry by which its logins are noted, as ghcr.io of
// oci://ghcr.io/org/model:v1.
func registryOf(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	return hostOf(rest)
}

// hostOf is the host of a server, as docker login and others note it: with a scheme and a
// path, or without. Docker's own registry has several names.
func hostOf(server string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://"), "/")
	if slices.Contains(fetchapi.DockerHosts, host) {
		return fetchapi.DockerHosts[0]
	}
	return host
}

// login is one of those in the config.json of docker login.
type login struct {
	Auth          string `json:"auth,omitempty"` // user and password, in base64; they count in place of the two
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
	RegistryToken string `json:"registrytoken,omitempty"`
}

// loginOf is what a config.json says of a registry, in a form that is the same of all that
// say the same; empty: nothing.
func loginOf(config, registry string) string {
	var is struct {
		Auths map[string]login `json:"auths"`
	}
	if json.Unmarshal([]byte(config), &is) != nil {
		return ""
	}
	for _, server := range slices.Sorted(maps.Keys(is.Auths)) {
		l := is.Auths[server]
		if hostOf(server) != registry || l == (login{}) { // as of one that a program keeps
			continue
		}
		if both, err := base64.StdEncoding.DecodeString(l.Auth); err == nil && l.Auth != "" {
			l.Auth = ""
			l.Username, l.Password, _ = strings.Cut(string(both), ":")
		}
		text, err := json.Marshal(l)
		if err != nil {
			return "" // plain texts can be written
		}
		return string(text)
	}
	return ""
}
