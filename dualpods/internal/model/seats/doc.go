// Package seats decides which seat of a SeatPool has which model. Decide is pure; its table stands in
// spec/seats.md.
package seats
