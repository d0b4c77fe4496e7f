// Package dualpods holds the nouns of dual pods that several of its packages share:
// what makes a Pod a launcher or a requester, when each goes, which launcher can serve which
// requester, and how the controllers write conditions.
//
// The packages below internal form layers. Each one imports only what stands below it:
//
//	wiring      the manager, telemetry, the relay of engine logs
//	roles       groups of servers: their Pods, Services and revisions
//	servers     what a server is to be, where it is placed, and its binding to a launcher
//	models      caches and claims of models, and the volumes that mount them
//	launchers   the pool of launcher Pods, the view of them, and who has which GPU
//	requesters  the program in a requester, and its API
//	trust       certificates, admission rules, installation and upgrade
package dualpods
