package supervisor

func (g *fakeGate) Host() string { return "127.0.0.1" }
