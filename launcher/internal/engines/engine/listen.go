package engine

// This file has the arguments and variables that tell an engine where to listen.

// Listening is where an engine can listen.
type Listening string

// Values of Listening.
const (
	PortOrSocket Listening = "" // as the launcher is set
	PortOnly     Listening = "port"
	SocketOnly   Listening = "socket"
)

// listenAt is where an engine listens. Without any, it is a worker, which does not.
type listenAt struct {
	socket string // path of a Unix socket; "": host and port
	host   string
	port   int
}

// Argv is everything after the program's name, with the engine listening on
// host and port and nowhere else. It is a fresh slice.
func (p Plan) Argv(host string, port int) []string {
	return p.argv(p, listenAt{host: host, port: port})
}

// SocketArgv is Argv with the engine listening on a Unix socket and nowhere else.
func (p Plan) SocketArgv(path string) []string { return p.argv(p, listenAt{socket: path}) }

// WorkerArgv is Argv for a rank that serves no HTTP.
func (p Plan) WorkerArgv() []string { return p.argv(p, listenAt{}) }

const headless = "--headless"

// Env is the engine's whole environment (KEY=value), sorted by key. It is a
// fresh slice. It may hold secrets.
func (p Plan) Env() []string { return append([]string(nil), p.env...) }

// PortEnv is Env for an engine that listens on a port.
func (p Plan) PortEnv(port int) []string { return p.withAddress(listenAt{port: port}) }

func (p Plan) withAddress(at listenAt) []string {
	if p.addressEnv == nil {
		return p.Env()
	}
	return append(p.Env(), p.addressEnv(at)...)
}

// SocketEnv is Env for an engine that listens on a Unix socket. The launcher alone
// reaches it there, so it believes the launcher which client a request came from. Over
// loopback it does so by itself (uvicorn's --forwarded-allow-ips).
func (p Plan) SocketEnv(path string) []string {
	env := p.withAddress(listenAt{socket: path})
	if _, set := lookup(env, forwardedAllow); set {
		return env
	}
	return append(env, forwardedAllow+"=*")
}

const forwardedAllow = "FORWARDED_ALLOW_IPS"
