package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestARequesterServesWhereConnectionsToItReachAModelThatIsAwake(t *testing.T) {
	const yes, no, unknown = "serves", "does not", "cannot be told"
	for name, c := range map[string]struct {
		o    Observation
		want string
	}{
		"served":                                        {servedOne(), yes},
		"not bound":                                     {fresh(), no},
		"its model is not awake":                        {but(servedOne(), func(o *Observation) { o.Instance.State = "falling_asleep" }), no},
		"its model was told to sleep":                   {but(servedOne(), func(o *Observation) { o.Calls.Sleep = true }), no},
		"its model has gone":                            {but(servedOne(), func(o *Observation) { o.Instance = nil }), no},
		"it is not ready":                               {but(servedOne(), func(o *Observation) { o.SPI.Proxy.Ready = false }), no},
		"its program carries nothing":                   {but(servedOne(), unserved), no},
		"its program forwards elsewhere":                {but(servedOne(), func(o *Observation) { o.Instance.Port = 40002 }), no},
		"its program forwards for an earlier attempt":   {but(servedOne(), func(o *Observation) { o.Record.Attempt = 2 }), yes},
		"its program forwards for an earlier record":    {but(servedOne(), func(o *Observation) { o.Record.Since = now.Add(1) }), no},
		"its program does not run":                      {but(servedOne(), func(o *Observation) { o.Requester.Running, o.SPI = false, nil }), no},
		"its program does not answer":                   {but(servedOne(), func(o *Observation) { o.SPI = nil }), unknown},
		"its program does not answer, its model sleeps": {but(servedOne(), func(o *Observation) { o.SPI, o.Instance.State = nil, "sleeping" }), no},
		"its launcher does not answer":                  {but(servedOne(), func(o *Observation) { o.Launcher.Connected = false }), unknown},
		"its launcher goes and does not answer":         {but(servedOne(), func(o *Observation) { o.Launcher.Connected, o.Launcher.Deleting = false, true }), no},
		"its launcher's container has ended":            {but(servedOne(), func(o *Observation) { o.Launcher.Connected, o.Launcher.Ended, o.Instance = false, true, nil }), no},
		"its record cannot be read":                     {but(servedOne(), func(o *Observation) { o.Record, o.Unread = nil, "damaged" }), unknown},
		"its node is gone":                              {but(servedOne(), func(o *Observation) { o.Node.Gone = true }), no},
		"it is deleted":                                 {but(servedOne(), deletedNow), yes},
		"it is deleted, and was told to end":            {but(servedOne(), func(o *Observation) { deletedNow(o); toldToEnd(o, time.Second) }), no},
		"the kubelet ends it":                           {but(servedOne(), endingNow), no},
		"it has ended":                                  {but(servedOne(), func(o *Observation) { o.Requester.Finished = true }), no},
		"it has other GPUs than its record":             {but(servedOne(), func(o *Observation) { o.SPI.GPUs = []string{"GPU-1"} }), no},
		"its specification has changed":                 {but(servedOne(), func(o *Observation) { o.Form.Port = 9000 }), yes},
	} {
		serves, known := c.o.Serves()
		got := unknown
		if known {
			got = map[bool]string{true: yes, false: no}[serves]
		}
		assert.Equal(t, c.want, got, name)
	}
}
