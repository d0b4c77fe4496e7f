// Package endpoints keeps the EndpointSlices of Services that name requesters by the
// annotation hotseat.dev/endpoints. A requester is in them as soon as its model is awake and
// its program forwards traffic to it, and out of them before its model sleeps. The kubelet
// would say so a second later.
//
// Package binding says who serves (Note), and asks whether a slice still leads to a requester
// before it unbinds it (Leads). See spec/decisions/0173-keep-endpoints-of-annotated-services.md.
package endpoints
