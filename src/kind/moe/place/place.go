// Package place decides where the experts of a layer are, and deals their rows. What comes in is
// how many rows every expert has; what goes out is which replicas hold an expert, and which
// of them works on which blocks of its rows. Nothing here changes a result: placement is for
// time alone.
package place

// Places returns the number of experts that a replica has room for: its even share, rounded up, and
// the spare places.
func Places(experts, replicas, spare int) int { return (experts+replicas-1)/replicas + spare }
