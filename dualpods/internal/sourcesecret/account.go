package sourcesecret

import (
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
	host := hostOf(rest)
	if host == "docker.io" || host == "registry-1.docker.io" {
		return "index.docker.io" // as docker login has it
	}
	return host
}

// hostOf is the host of a server, as docker login notes it: with a scheme and a path, or
// without.
func hostOf(server string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://"), "/")
	return host
}

// loginOf is what the config.json of docker login says of a registry, as JSON; empty:
// nothing.
func loginOf(config, registry string) string {
	var is struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal([]byte(config), &is) != nil {
		return ""
	}
	for _, server := range slices.Sorted(maps.Keys(is.Auths)) {
		if hostOf(server) == registry {
			return string(is.Auths[server])
		}
	}
	return ""
}
