package launcher

import "fmt"

// BytesText formats a number of bytes for people: "79.6 GiB", "512.0 MiB" or "17
// bytes". It keeps one decimal: a refusal often compares two amounts that differ by
// less than a GiB.
func BytesText(n uint64) string {
	const mib, gib = 1 << 20, 1 << 30
	switch {
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	case n >= mib:
		return fmt.Sprintf("%.1f MiB", float64(n)/mib)
	}
	return fmt.Sprintf("%d bytes", n)
}

// ExactBytesText formats a number of bytes as BytesText does, with all digits behind it where
// that rounds: two amounts that are compared may differ by less than what is rounded away.
func ExactBytesText(n uint64) string {
	rounded, digits := BytesText(n), fmt.Sprintf("%d bytes", n)
	if rounded == digits {
		return digits
	}
	return rounded + " (" + digits + ")"
}
