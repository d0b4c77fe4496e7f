package launcherapi

import "time"

// FrontDoor is the address at which a launcher serves all its models, and what it serves there.
type FrontDoor struct {
	Address  string           `json:"address" doc:"Where the front door listens." example:"127.0.0.1:8000"`
	Profile  string           `json:"profile,omitempty" doc:"The profile of the configuration that is chosen. Absent: none is."`
	Profiles []string         `json:"profiles,omitempty" doc:"The profiles of the configuration."`
	Models   []FrontDoorModel `json:"models" doc:"The models of the configuration, and the instances that somebody has made."`
}

// FrontDoorModel is a model that clients may ask for.
type FrontDoorModel struct {
	Names      []string  `json:"names" doc:"By which clients ask for it; the first one is its own." minItems:"1"`
	InstanceID string    `json:"instance_id,omitempty" doc:"Its instance. Absent: it has none."`
	State      string    `json:"state" doc:"That of its instance; stopped if it has none."`
	Waiting    int       `json:"waiting" doc:"Requests that wait for it at the front door."`
	InFlight   int       `json:"in_flight" doc:"Requests that came through the front door and are being answered."`
	Why        string    `json:"why,omitempty" doc:"Why requests wait for it."`
	Failures   int       `json:"failures,omitempty" doc:"How often in a row it could not be brought in."`
	Failure    string    `json:"failure,omitempty" doc:"Why it could not be brought in the last time."`
	HeldBack   bool      `json:"held_back,omitempty" doc:"It has failed too often in a row. Requests for it are refused until retry_at."`
	RetryAt    time.Time `json:"retry_at,omitzero" doc:"After a failure: when it is tried again."`
	TookMS     float64   `json:"took_ms,omitempty" doc:"How long its last wake or start took, in milliseconds."`
	Priority   int       `json:"priority,omitempty"`
	Pinned     bool      `json:"pinned,omitempty"`
}

// ProfileChoice chooses a profile of the configuration.
type ProfileChoice struct {
	Profile string `json:"profile" doc:"Its name. Empty: none is chosen."`
}
