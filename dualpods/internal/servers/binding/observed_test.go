package binding

import (
	"time"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// fresh is a requester that runs and has our finalizer, on a node whose launcher
// answers.
func fresh() decide.Observation {
	return decide.Observation{
		Common: decide.Common{
			Now: now, Node: decide.Node{Name: "node-0"}, Form: form.Form{Args: []string{"org/model"}, Port: 8000, GPUs: 1, LauncherConfig: "vllm"},
			Requester: decide.Requester{UID: "uid", Namespace: "ns", Name: "req", Instance: "model-1", Exists: true, Running: true, Finalizer: true, GPUs: 1, Program: podmeta.ServingContainer},
			SPI:       &decide.SPI{GPUs: []string{"GPU-0"}, Proxy: requesterapi.Proxy{State: requesterapi.StateUnbound}},
		},
		Launcher: &decide.Launcher{Name: "launcher-0", Config: "vllm", IP: "10.1.0.2", Connected: true, GPUs: []string{"GPU-0", "GPU-1"}},
	}
}

// newRecord returns the record that a requester gets.
func newRecord(o decide.Observation) *podmeta.Binding {
	record := decide.Decide(o).Record
	return &record
}

// nextRecord returns the record that a requester gets after its attempt has failed.
func nextRecord(o decide.Observation) *podmeta.Binding {
	o.Attempt = decide.Attempt{Asked: true, Over: true, Failure: "it failed"}
	return newRecord(o)
}

// recorded is one with a record.
func recorded() decide.Observation {
	o := fresh()
	o.Record = newRecord(o)
	return o
}

// with is a recorded one whose instance is in that state.
func with(state string) decide.Observation {
	o := recorded()
	o.Record.New = false
	o.Instance = &launcherapi.Instance{InstanceID: "model-1", State: state, Port: 40001}
	return o
}

// servedOne is one that is served.
func servedOne() decide.Observation {
	o := with("awake")
	o.Attempt = decide.Attempt{Asked: true, Over: true}
	o.SPI.Proxy = requesterapi.Proxy{ProxyConfig: o.Awake().Proxy(), State: requesterapi.StateBound, Ready: true}
	o.Requester.Published, o.Requester.Shown = true, true
	return o
}

// but is an observation with a change.
func but(o decide.Observation, change func(*decide.Observation)) decide.Observation {
	change(&o)
	return o
}
