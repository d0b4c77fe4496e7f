package launcherapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Duration is a span of time, never negative. Its JSON is a string such as "1m30s"; a
// number of seconds is read too.
type Duration time.Duration

// D returns the duration as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads "1m30s" or a number of seconds. The error for a negative or
// unreadable duration has its value.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Errorf("cannot read duration: %w", err)
	}
	parsed, err := parseDuration(value)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// ParseDuration reads a duration from a flag or a query parameter: "1m30s", or
// a number of seconds such as "90" or "0.5".
func ParseDuration(text string) (Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return parseDuration(seconds)
	}
	return parseDuration(text)
}

func parseDuration(value any) (Duration, error) {
	switch v := value.(type) {
	case string:
		parsed, err := time.ParseDuration(v)
		if err != nil {
			return 0, fmt.Errorf("cannot read duration %q: write it like \"1m30s\" or as a number of seconds", v)
		}
		return notNegative(parsed, v)
	case float64:
		if math.IsNaN(v) || math.Abs(v) > math.MaxInt64/float64(time.Second) {
			return 0, fmt.Errorf("duration of %v seconds is out of range", v)
		}
		return notNegative(time.Duration(v*float64(time.Second)), v)
	default:
		return 0, errors.New("duration must be a string like \"1m30s\" or a number of seconds")
	}
}

func notNegative(d time.Duration, written any) (Duration, error) {
	if d < 0 {
		return 0, fmt.Errorf("duration %v is negative", written)
	}
	return Duration(d), nil
}
