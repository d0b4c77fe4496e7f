package gpu

import (
	"slices"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// check is one question about the health of a board; its reason is empty when
// the answer is good.
type check struct {
	function string
	ask      func(board nv.Device) (reason string, ret nv.Return)
}

// checks are sorted by severity. The first works on every GPU, so it finds a lost GPU even
// where the others are not supported.
var checks = []check{
	{"nvmlDeviceGetMemoryInfo", func(board nv.Device) (string, nv.Return) {
		_, ret := board.GetMemoryInfo()
		return "", ret
	}},
	{"nvmlDeviceGetRemappedRows", func(board nv.Device) (string, nv.Return) {
		_, _, pending, exhausted, ret := board.GetRemappedRows()
		switch {
		case exhausted:
			return reasonRemap, ret
		case pending:
			return reasonPending, ret
		}
		return "", ret
	}},
	{"nvmlDeviceGetRetiredPagesPendingStatus", func(board nv.Device) (string, nv.Return) {
		pending, ret := board.GetRetiredPagesPendingStatus()
		if pending == nv.FEATURE_ENABLED {
			return reasonPending, ret
		}
		return "", ret
	}},
	{"nvmlDeviceGetTotalEccErrors", func(board nv.Device) (string, nv.Return) {
		count, ret := board.GetTotalEccErrors(nv.MEMORY_ERROR_TYPE_UNCORRECTED, nv.VOLATILE_ECC)
		if count > 0 {
			return reasonECC, ret
		}
		return "", ret
	}},
}

// Health makes the checks that the driver answers at once. A check that the driver
// does not support, or not for this user, counts as passed.
func (n *nvml) Health(uuid string) Health {
	health := Health{OK: true}
	err := n.with(uuid, func(h handle) error {
		for _, c := range checks {
			if !n.has(c.function) {
				continue
			}
			reason, ret := c.ask(h.board)
			switch {
			case ret == nv.ERROR_GPU_IS_LOST:
				reason = reasonLost
			case ret == nv.ERROR_RESET_REQUIRED:
				reason = reasonReset
			case ret == nv.ERROR_NO_PERMISSION, slices.Contains(notForThisDevice, ret):
				continue
			case ret != nv.SUCCESS:
				return failed(c.function, ret)
			}
			if reason != "" {
				health = Health{Reason: reason}
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return Health{Reason: err.Error()}
	}
	return health
}
