package decide

// Row is a row of the table in spec/model.md.
type Row string

// The rows, in the order of the table.
const (
	RowOff Row = "scaling is off"

	RowInvalid       Row = "input wrong"
	RowRefused       Row = "creation refused"
	RowFailed        Row = "Pod failed"
	RowUnschedulable Row = "unschedulable too long"
	RowNotReady      Row = "not ready in time"

	RowRaceOver     Row = "race is over"
	RowMaximum      Row = "at its maximum"
	RowTotalMaximum Row = "total maximum"
	RowMinimum      Row = "minimum"

	RowDemand       Row = "demand"
	RowWakes        Row = "wakes on free GPUs"
	RowRaces        Row = "races"
	RowBacksOff     Row = "backs off"
	RowGroupBackOff Row = "group backs off"

	RowUnknown Row = "demand not known"
	RowLess    Row = "less demand"
	RowLast    Row = "last one stays"
	RowTried   Row = "back to the preferred"

	RowStandbyNone  Row = "standby without replicas"
	RowStandbyRests Row = "standby rests"
	RowStandbyAlone Row = "standby alone"
	RowStandbyFirst Row = "standby before the last goes"
	RowStandbyLater Row = "later standby"

	RowStays Row = "stays"
)

// rows are all rows in the order of the table.
var rows = []Row{
	RowOff, RowInvalid, RowRefused, RowFailed, RowUnschedulable, RowNotReady,
	RowRaceOver, RowMaximum, RowTotalMaximum, RowMinimum,
	RowDemand, RowWakes, RowRaces, RowBacksOff, RowGroupBackOff,
	RowUnknown, RowLess, RowLast, RowTried,
	RowStandbyNone, RowStandbyRests, RowStandbyAlone, RowStandbyFirst, RowStandbyLater,
	RowStays,
}
