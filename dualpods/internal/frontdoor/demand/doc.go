// Package demand counts the requests for each Model: [Own] those of this front door, which it tells to whoever
// asks, and [Listener] those that other front doors tell.
package demand
