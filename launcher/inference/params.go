package inference

import "encoding/json"

// Params is a change of the parameters of a request: members of its JSON object.
type Params struct {
	Strip []string
	Set   map[string]json.RawMessage
}
