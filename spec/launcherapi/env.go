package launcherapi

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Redacted replaces a value that looks like a secret in answers.
const Redacted = "[redacted]"

// EnvValue is the value of one environment variable: a string, or the content of a file
// below a folder that the launcher's setting env_file_dirs names. With a file, a secret
// does not pass through the API.
type EnvValue struct {
	Value    string // the value itself; unused when FromFile is set
	FromFile string // absolute path of a file; one trailing newline is dropped
}

// MarshalJSON writes a string, or {"from_file": path}.
func (v EnvValue) MarshalJSON() ([]byte, error) {
	if v.FromFile != "" {
		return json.Marshal(map[string]string{"from_file": v.FromFile})
	}
	return json.Marshal(v.Value)
}

// UnmarshalJSON reads a string, or {"from_file": path} and nothing else.
func (v *EnvValue) UnmarshalJSON(data []byte) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '"' {
		*v = EnvValue{}
		return json.Unmarshal(trimmed, &v.Value)
	}
	var ref struct {
		FromFile string `json:"from_file"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if dec.Decode(&ref) != nil {
		return errors.New("cannot read the value of an environment variable: write a string, or {\"from_file\": path} with no other key")
	}
	if ref.FromFile == "" {
		return errors.New("from_file is empty: give the path of a file")
	}
	*v = EnvValue{FromFile: ref.FromFile}
	return nil
}
