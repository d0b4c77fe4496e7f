//go:build !race

package seats

// schedules is how many are played.
const schedules = 600
