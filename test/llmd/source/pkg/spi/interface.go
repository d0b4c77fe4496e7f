/*
Copyright 2025 The llm-d Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

	http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package spi

import (
	"net"
	"strconv"
)

// This file defines interface of the stub.

// AcceleratorQueryPath is the path part of the URL that is polled
// to get the server-requesting container's associated accelerators.
// The scheme of the URL is HTTP.
// The host part of the URL is something that refers to the
// server-requesting container.
// A 200 response's body must contain a JSON array of strings.
// Each string identifies one accelerator, in a way that
// is appropriate for the software used to access the accelerators.
const AcceleratorQueryPath = "/v1/dual-pods/accelerators"

// AcceleratorMemoryQueryPath is the path part of the URL that
// responds to an HTTP GET request with a response body that is
// the JSON for a JSON "object" whose keys are accelerator IDs
// and whose values are integers, the number of bytes of accelerator
// memory in use.
const AcceleratorMemoryQueryPath = "/v1/dual-pods/accelerator-memory-usage"

// BecomeReadyPath is the path to POST to in order to set readiness to true
const BecomeReadyPath = "/v1/become-ready"

// BecomeUnreadyPath is the path to POST to in order to set readiness to false
const BecomeUnreadyPath = "/v1/become-unready"

// ReadyPath is where to send a GET to query readiness
const ReadyPath = "/ready"

// SetLogPath is the path to POST to in order to relay a chunk of the
// inference server's log.
// The body contains the log chunk, and should have content type "text/plain".
// There should be a query parameter named "startPod" whose value
// is the decimal representation of the starting position of the chunk,
// 0 based.
// The requester will utilize only new log content.
// Response has status 200 if no problem,
// status 400 if the startPos is beyond the last accepted content,
// status 5XX on internal problem.
const SetLogPath = "/v1/set-log"

// LogStartPosParam is the name of the query parameter that
// holds that starting position of a log chunk.
const LogStartPosParam = "startPos"

// ProxyConfigPath is the path for the proxy configuration resource.
// Supports two HTTP methods:
//   - GET: retrieves the configuration status of the proxy.
//     Returns 200 if configured, 404 if not.
//   - PUT: configures the proxy with a target address and port.
//     After successful configuration, the proxy will forward TCP
//     connections to the configured target.
const ProxyConfigPath = "/v1/proxy/config"

// ProxyTargetConfig is the request and response body for configuring the proxy
// with a target address and port (sent by the dual-pods controller).
type ProxyTargetConfig struct {
	// Address is the target host to proxy to.
	Address string `json:"address"`
	// Port is the target port number.
	Port uint16 `json:"port"`
}

// String returns the target formatted as a "host:port" network address.
func (t ProxyTargetConfig) String() string {
	return net.JoinHostPort(t.Address, strconv.FormatUint(uint64(t.Port), 10))
}
