package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"dynmo/src/cost"
)

// packs parses --pack. most is the largest number of stages.
func packs(flag map[string]int, most int) (map[int]int, error) {
	list := make(map[int]int)
	for _, step := range slices.Sorted(maps.Keys(flag)) {
		n, err := strconv.Atoi(step)
		if stages := flag[step]; err != nil || n < 1 || stages < 1 || stages > most {
			return nil, fmt.Errorf("--pack %s=%d: want STEP=STAGES, a step of at least 1 and 1 to %d stages", step, stages, most)
		}
		list[n] = flag[step]
	}
	return list, nil
}

// within returns an error for steps of --pack that a series does not have.
func within(packs map[int]int, series cost.Series) error {
	first, steps := series[0].Step, stepsIn(series)
	for _, step := range slices.Sorted(maps.Keys(packs)) {
		if step <= first || step >= first+steps {
			return fmt.Errorf("--pack %d=%d: want a step from %d to %d, of the run but its first", step, packs[step], first+1, first+steps-1)
		}
	}
	return nil
}
