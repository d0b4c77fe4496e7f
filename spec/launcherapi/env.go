package launcherapi

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Redacted stands in answers in place of a value that looks like a secret.
const Redacted = "[redacted]"

// EnvValue is the value of one environment variable: a literal string, or the
// content of a file below one of the folders that the launcher's configuration
// allows (env_file_dirs), so that a secret need not travel through the API.
type EnvValue struct {
	Value    string // literal; unused when FromFile is set
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
		return errors.New("cannot read the value of an environment variable: write a string, or {\"from_file\": path} and nothing beside it")
	}
	if ref.FromFile == "" {
		return errors.New("from_file must name a file")
	}
	*v = EnvValue{FromFile: ref.FromFile}
	return nil
}
