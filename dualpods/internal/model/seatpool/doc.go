// Package seatpool reconciles SeatPools: it observes a pool's seats and the entries of Models that ask for them, has
// package seats decide, and writes what that says.
package seatpool
