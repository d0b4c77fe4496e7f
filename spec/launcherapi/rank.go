package launcherapi

// Rank says which part of a server over several launchers an instance is. Each rank is an
// instance of another launcher, and all of them have the same arguments.
type Rank struct {
	Group string `json:"group" minLength:"1" maxLength:"253" doc:"Name of the server, the same for all of its ranks."`
	Index int    `json:"index" minimum:"0" maximum:"63" doc:"Which rank. 0 is the entry, which serves HTTP; the others are workers, which have no port."`
	Size  int    `json:"size" minimum:"2" maximum:"64" doc:"How many ranks the server has. Each gets tensor-parallel × pipeline-parallel ÷ size GPUs."`
	Entry string `json:"entry" minLength:"3" maxLength:"259" doc:"HOST:PORT at which the entry meets the others. The entry has leased the port." example:"10.0.0.7:40123"`
}
