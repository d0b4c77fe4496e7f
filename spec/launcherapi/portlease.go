package launcherapi

import "time"

// MaxLeasedPorts is the number of ports that a lease can have.
const MaxLeasedPorts = 8

// PortLeaseRequest asks for ports of an instance that is yet to be created.
type PortLeaseRequest struct {
	Count int `json:"count" minimum:"1" maximum:"8" doc:"How many ports. In the arguments and variables of the instance they are $(PORT_0), $(PORT_1) and so on."`
}

// PortLease is a set of ports that the launcher keeps for one instance.
type PortLease struct {
	ID        string    `json:"id" doc:"Id of the instance that may take the ports."`
	Ports     []int     `json:"ports" doc:"The ports, in the order of $(PORT_0), $(PORT_1) and so on."`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"When the lease ends unless the instance is created before. Absent while an instance has the ports: the lease then ends with the instance."`
}
