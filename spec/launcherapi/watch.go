package launcherapi

import "encoding/json"

// EventType says what happened to an instance.
type EventType string

// The types of events on a watch stream.
const (
	EventCreated   EventType = "CREATED"   // the instance exists now, or existed when the watch began
	EventUpdated   EventType = "UPDATED"   // its state changed
	EventStopped   EventType = "STOPPED"   // its process has ended, by request or by itself
	EventDeleted   EventType = "DELETED"   // the launcher has forgotten it
	EventHeartbeat EventType = "HEARTBEAT" // nothing happened; object is a Heartbeat
	EventError     EventType = "ERROR"     // the stream ends; object is a Problem
)

// WatchEvent is one line of a watch stream.
type WatchEvent struct {
	Type   EventType `json:"type" enum:"CREATED,UPDATED,STOPPED,DELETED"`
	Object Instance  `json:"object"`
}

// RawEvent is a WatchEvent whose object is not decoded yet, because the object of a
// HEARTBEAT or an ERROR is no instance.
type RawEvent struct {
	Type   EventType       `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Heartbeat is the object of a HEARTBEAT event.
type Heartbeat struct {
	Revision uint64 `json:"revision"`
}
