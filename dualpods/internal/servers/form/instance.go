package form

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"
)

// notInID matches what cannot stand in an instance's id.
var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// InstanceID names the instance of a form on a set of GPUs: one name, one instance.
// It begins with the model's name, for people.
func InstanceID(form Form, gpus []string) string { return InstanceIDs(form)(gpus) }

// InstanceIDs returns what names the instances of a form on any set of GPUs.
func InstanceIDs(form Form) func(gpus []string) (id string) {
	name, hash := "", form.Hash()
	if len(form.Args) > 0 {
		name = strings.Trim(notInID.ReplaceAllString(strings.ToLower(path.Base(form.Args[0])), "-"), "-")
	}
	if len(name) > 30 {
		name = strings.Trim(name[:30], "-")
	}
	if name == "" {
		name = "server"
	}
	return func(gpus []string) string {
		sum := sha256.Sum256([]byte(hash + "\n" + strings.Join(slices.Sorted(slices.Values(gpus)), "\n")))
		return name + "-" + hex.EncodeToString(sum[:6])
	}
}
