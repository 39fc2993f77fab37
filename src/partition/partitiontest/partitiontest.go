// Package partitiontest draws partitions for the tests of packages that use
// them.
package partitiontest

import (
	"math/rand/v2"
	"slices"

	"dynmo/src/partition"
)

// Random returns a partition that gives every stage at least one layer: all
// such partitions are equally likely. It panics if stages is not in [1, layers].
func Random(draw *rand.Rand, layers, stages int) partition.Partition {
	if stages < 1 || stages > layers {
		panic("partitiontest: stages outside [1, layers]")
	}
	cuts := draw.Perm(layers - 1)[:stages-1] // stage s+1 begins behind layer cuts[s], once sorted
	slices.Sort(cuts)
	p := partition.Partition{0}
	for _, l := range cuts {
		p = append(p, l+1)
	}
	return append(p, layers)
}
