package layout

// Moved is the result of a migration, over all ranks of its group.
type Moved struct {
	Layers int
	Bytes  int64
	Behind int64 // part of Bytes that is sent while the stages work on their next step

	Refused string // the reason why nothing moved, the same on all ranks; "" if layers moved
}
